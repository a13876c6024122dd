/**
 * Formats one record of a capture as lines for people. Callers and providers wrote most of it, so it must not be able
 * to control the terminal. Pure.
 */
import { counted } from '../terminal/text.ts'

// biome-ignore lint/suspicious/noControlCharactersInRegex: these would move the cursor or hide text
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g

interface ShownBody {
  readonly bytes?: number
  readonly text?: string
  readonly base64?: string
  readonly cut_after?: number
  readonly left_out?: string
}

interface ShownCall {
  readonly provider?: string | null
  readonly method?: string
  readonly host?: string
  readonly path?: string
  readonly headers?: readonly (readonly [string, string])[]
  readonly body?: ShownBody
  readonly at_ms?: number
  readonly status?: number | null
  readonly reply_headers?: readonly (readonly [string, string])[]
  readonly reply?: ShownBody
  readonly ended_ms?: number | null
  readonly error?: string | null
}

interface ShownRecord {
  readonly generation_id?: string
  readonly parent_id?: string
  readonly time?: string
  readonly duration_ms?: number
  readonly key_hash?: string
  readonly dialect?: string
  readonly model?: string
  readonly request?: unknown
  readonly calls?: readonly ShownCall[]
  readonly more_calls?: number
  readonly finish?: string | null
  readonly output?: unknown
  readonly error?: { readonly type?: string; readonly message?: string } | null
  readonly left_out?: number
}

/** The text with escapes for characters that would change a terminal. Valid JSON keeps its meaning. */
export function escapeControls(text: string): string {
  return text.replace(CONTROLS, character => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}

export function recordLines(line: string): readonly string[] {
  const record = JSON.parse(line) as ShownRecord
  return [...linesOf(record)].flatMap(text => escapeControls(text).split('\n'))
}

function* linesOf(record: ShownRecord): Generator<string> {
  yield ''
  if (record.generation_id === undefined) {
    yield `(left out here: ${counted(record.left_out ?? 0, 'request')})`
    return
  }
  const { generation_id: id, time, duration_ms: ms, dialect, model, key_hash: hash } = record
  yield `=== ${id}  ${time}  ${ms} ms  ${dialect}  ${model}`
  yield `key ${hash}${record.parent_id === undefined ? '' : `, for ${record.parent_id}`}`
  yield* section('request', documentOf(record.request))
  for (const [index, call] of (record.calls ?? []).entries()) yield* callLines(index + 1, call)
  if (record.more_calls !== undefined) yield `(${record.more_calls} more calls)`
  yield* section(`output, finish ${record.finish ?? 'none'}`, documentOf(record.output))
  if (record.error != null) yield `error ${record.error.type}: ${record.error.message}`
}

function* callLines(number: number, call: ShownCall): Generator<string> {
  const { method, host, path, provider, at_ms: startedMs, status, ended_ms: endedMs, error } = call
  const end = endedMs == null ? 'still running' : `ended at ${endedMs} ms`
  yield `--- call ${number} at ${startedMs} ms: ${method} ${host}${path} (${provider ?? 'unknown provider'})`
  yield* (call.headers ?? []).map(([name, value]) => `  ${name}: ${value}`)
  yield* section('body', bodyOf(call.body))
  yield `--- reply ${number}: ${status ?? 'no status'}, ${end}${error == null ? '' : `, ${error}`}`
  yield* (call.reply_headers ?? []).map(([name, value]) => `  ${name}: ${value}`)
  yield* section('body', bodyOf(call.reply))
}

function* section(name: string, text: string): Generator<string> {
  yield `${name}:`
  yield text.replace(/^/gm, '  ')
}

function bodyOf(body: ShownBody | undefined): string {
  if (body?.left_out !== undefined) return `(${body.bytes} bytes left out: ${body.left_out})`
  const cutNote = body?.cut_after === undefined ? '' : `\n(cut: ${body.cut_after} of ${body.bytes} bytes)`
  if (body?.base64 !== undefined) return `base64 ${body.base64}${cutNote}`
  return `${body?.text ?? ''}${cutNote}`
}

function documentOf(value: unknown): string {
  if (typeof value !== 'object' || value === null) return 'none'
  const { left_out: leftOut, text } = value as { readonly left_out?: unknown; readonly text?: unknown }
  if (typeof leftOut === 'string') return `(left out: ${leftOut})`
  // A text from which secrets were removed.
  if (typeof text === 'string' && Object.keys(value).length === 1) return text
  return JSON.stringify(value, null, 2)
}
