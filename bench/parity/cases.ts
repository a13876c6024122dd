/**
 * Cases of the parity run: every recorded provider reply and every golden of the repository, each through the format
 * that reads it, streamed and whole. Replies that no format reads are played to all formats, because a provider may
 * send anything.
 */
import { goldens } from '../../test/support/goldens.ts'
import { type Recording, recordings } from '../../test/support/recordings.ts'

export const FORMATS = ['openai-responses', 'openai-chat', 'anthropic-messages', 'google-gemini'] as const
export type Format = (typeof FORMATS)[number]

/** Kinds of recordings that belong to no format of the gateway. */
const FOREIGN = ['embeddings', 'other']

/**
 * `general`: a provider row that forbids relaying, so that every frame is decoded. `healed`: a plugin repairs the
 * answer where it is told whole. `guarded`: a guardrail redacts words of the answer.
 */
export const WAYS = ['streamed', 'whole', 'general', 'healed', 'guarded'] as const
type Way = (typeof WAYS)[number]

/** A reply as the provider sends it. */
export interface Play {
  readonly source: 'recording' | 'golden' | 'foreign'
  /** File below its collection. */
  readonly name: string
  readonly format: Format
  readonly streamed: boolean
  readonly status: number
  readonly contentType: string
  bytes(): Buffer
}

export interface Case {
  /** Model name at the provider. One for each case, so that no failure of one changes how another is served. */
  readonly id: string
  readonly label: string
  readonly play: Play
  readonly way: Way
}

/** All replies. Without the shared collection: the goldens alone. */
export function plays(): readonly Play[] {
  return [
    ...FORMATS.flatMap(format => recordings(format).map(one => recorded(one, format, 'recording'))),
    ...FORMATS.flatMap(format =>
      goldens(format).map(
        (one): Play => ({
          source: 'golden',
          name: `${format}/${one.file}`,
          format,
          streamed: one.streamed,
          status: 200,
          contentType: one.streamed ? 'text/event-stream' : 'application/json',
          bytes: () => one.bytes,
        }),
      ),
    ),
    ...FORMATS.flatMap(format => FOREIGN.flatMap(recordings).map(one => recorded(one, format, 'foreign'))),
  ]
}

export function casesOf(all: readonly Play[]): readonly Case[] {
  return all
    .flatMap(play => waysOf(play).map(way => ({ play, way })))
    .map(({ play, way }, at) => ({
      id: `c${String(at).padStart(5, '0')}`,
      label: `${labelOf(play)}, ${way}`,
      play,
      way,
    }))
}

/** Whether the provider says when it may be asked again. */
export function asksToWait({ status, bytes }: Play): boolean {
  return status === 429 || bytes().includes('"retryDelay"')
}

export function labelOf({ source, name, format }: Play): string {
  return `${source} ${name} as ${format}`
}

/** Whether the client of a case asks for events. */
export function asksForStream({ play, way }: Case): boolean {
  return way === 'streamed' || way === 'general' || (way !== 'whole' && play.streamed)
}

function waysOf(play: Play): readonly Way[] {
  if (play.source === 'foreign') return ['streamed', 'whole']
  return play.format === 'openai-responses' ? WAYS : ['streamed', 'whole', 'healed', 'guarded']
}

function recorded(one: Recording, format: Format, source: Play['source']): Play {
  return {
    source,
    name: one.file,
    format,
    streamed: one.streamed,
    status: one.httpStatus ?? 200,
    contentType: one.contentType ?? (one.streamed ? 'text/event-stream' : 'application/json'),
    bytes: () => one.bytes(),
  }
}
