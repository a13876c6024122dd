/** The type of a built-in row, and values that many rows share. Pure. */
import type { DataPolicy, Provider, Quirk } from '../../protocol/provider.ts'

/** A provider that cannot be asked: none of the formats is publicly its own. */
export interface UnofferedRow {
  readonly name: string
  /** Why, in words for the caller: what follows "is not offered: ". */
  readonly notOffered: string
}

/** A provider that needs only a key. Its format sets the auth scheme, unless the row does. */
export interface ServingRow
  extends Pick<Provider, 'name' | 'format' | 'baseUrl'>,
    Partial<
      Pick<
        Provider,
        | 'auth'
        | 'quirks'
        | 'headers'
        | 'baseUrls'
        | 'regionUrls'
        | 'embeddings'
        | 'region'
        | 'hosts'
        | 'awsService'
        | 'tokenUrl'
        | 'keyForm'
        | 'policy'
        | 'authors'
        | 'messagesMax'
        | 'customTools'
      >
    > {
  /** The environment variable that holds the service's key where the configuration gives none. */
  readonly keyVariable?: string
}

export type Row = UnofferedRow | ServingRow

/** Quirks that servers of open models share: they copy OpenAI's older fields and ignore or refuse the newer. */
export const COMPATIBLE: readonly Quirk[] = ['max-tokens', 'system-role', 'no-strict-tools']

/** A provider with OpenAI's chat completions. */
export function chat(
  name: string,
  baseUrl: string,
  keyVariable: string,
  more: Partial<Omit<ServingRow, 'name' | 'baseUrl' | 'keyVariable'>> = {},
): ServingRow {
  return { name, format: 'openai-chat', baseUrl, keyVariable, quirks: COMPATIBLE, ...more }
}

// Data policies of paid use, as the providers' public terms and documents state them. No row means: not known.

/** Keeps nothing and does not train. */
export const KEEPS_NOTHING: DataPolicy = { trains: false, retentionDays: 0 }
/** Does not train, and keeps prompts and replies for up to 30 days to detect abuse. */
export const KEEPS_A_MONTH: DataPolicy = { trains: false, retentionDays: 30 }
/** Does not train; how long it keeps is not said, or depends. */
export const DOES_NOT_TRAIN: DataPolicy = { trains: false, retentionDays: null }
export const TRAINS: DataPolicy = { trains: true, retentionDays: null }
