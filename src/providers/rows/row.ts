/** The type of a built-in row, and values that many rows share. Pure. */
import type { DataPolicy, Provider, Quirk } from '../../protocol/provider.ts'

/** A provider that cannot be called, for example because it publicly offers none of the formats. */
export interface UnofferedRow {
  readonly name: string
  /** The reason for the caller, which follows "is not offered: ". */
  readonly notOffered: string
}

/**
 * A provider that can be called; for some, the configuration or the key adds a part of the address. The format
 * determines the auth scheme, unless the row does.
 */
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
        | 'continues'
        | 'modelRules'
        | 'jsonFormats'
        | 'jsonBesideTools'
      >
    > {
  /** The environment variable with the operator's key, if the configuration contains none. */
  readonly keyVariable?: string
}

export type Row = UnofferedRow | ServingRow

/** Quirks of servers for open models: they implement OpenAI's older fields, and ignore or refuse newer ones. */
export const COMPATIBLE_QUIRKS: readonly Quirk[] = ['max-tokens', 'system-role', 'no-strict-tools']

/** A provider with OpenAI's chat completions. */
export function chat(
  name: string,
  baseUrl: string,
  keyVariable: string,
  fields: Partial<Omit<ServingRow, 'name' | 'baseUrl' | 'keyVariable'>> = {},
): ServingRow {
  return { name, format: 'openai-chat', baseUrl, keyVariable, quirks: COMPATIBLE_QUIRKS, ...fields }
}

// Data policies of paid use, as stated in the providers' public terms. No policy means unknown.

/** Keeps nothing and does not train. */
export const KEEPS_NOTHING: DataPolicy = { trains: false, retentionDays: 0 }
/** Does not train, and keeps prompts and replies for up to 30 days to detect abuse. */
export const KEEPS_A_MONTH: DataPolicy = { trains: false, retentionDays: 30 }
/** Does not train. How long it keeps data is unknown or varies. */
export const DOES_NOT_TRAIN: DataPolicy = { trains: false, retentionDays: null }
export const TRAINS: DataPolicy = { trains: true, retentionDays: null }
