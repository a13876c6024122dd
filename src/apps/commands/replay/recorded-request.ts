/** A request of a capture that can be sent again, read from its line of JSON. Pure. */
import { parseJson, record } from '../../../base/json.ts'
import { DIALECT_ABILITIES } from '../../../protocol/dialect-abilities.ts'
import type { OutputItem } from '../../../protocol/items.ts'
import type { DialectName } from '../../../protocol/request.ts'

/** A call to a provider, with its whole reply if there was one. */
export interface RecordedCall {
  /** Slug. */
  readonly provider: string
  /** Null: there was no reply. */
  readonly status: number | null
  readonly headers: Readonly<Record<string, string>>
  readonly reply: Buffer
}

export interface RecordedRequest {
  /** Generation id. */
  readonly id: string
  /** The model that the request named. */
  readonly model: string
  /** Body of POST /responses. */
  readonly body: Readonly<Record<string, unknown>>
  /** Only calls whose provider is known, and whose reply was recorded whole if there was one. */
  readonly calls: readonly RecordedCall[]
  readonly finish: string | null
  readonly output: readonly OutputItem[]
  /** Type of the error; null: it succeeded. */
  readonly error: string | null
}

/** The reason why a record is not sent again. */
export interface SkippedRecord {
  readonly id: string | null
  readonly why: string
}

interface CapturedBody {
  readonly text?: unknown
  readonly base64?: unknown
  readonly cut_after?: unknown
  readonly left_out?: unknown
}

interface CapturedCall {
  readonly provider?: unknown
  readonly status?: unknown
  readonly reply_headers?: unknown
  readonly reply?: CapturedBody
}

/** Fields that refer to data of the running gateway. */
const OWN_FIELDS = ['previous_response_id', 'background'] as const

/** Null: the line marks a gap. */
export function recordedRequest(line: string): RecordedRequest | SkippedRecord | null {
  const fields = record(parseJson(line))
  const id = fields?.['generation_id']
  if (fields === null || typeof id !== 'string') return null
  const { dialect, error, finish, output, parent_id: parent, request, calls = [] } = fields
  const skip = (why: string): SkippedRecord => ({ id, why })
  if (parent !== undefined) return skip('a tool of another request made it')
  const abilities = DIALECT_ABILITIES[dialect as DialectName] as { readonly embeds: boolean } | undefined
  if (abilities?.embeds === true) return skip('it asks for embeddings')
  const body = record(request)
  if (body === null) return skip('it has no content')
  if (typeof body['left_out'] === 'string') return skip(`its content was not kept: ${body['left_out']}`)
  if (body['input'] === undefined) return skip('secrets were removed from its content')
  const resentBody: Record<string, unknown> = { ...body }
  for (const name of OWN_FIELDS) delete resentBody[name]
  return {
    id,
    model: typeof fields['model'] === 'string' ? fields['model'] : '',
    body: resentBody,
    calls: (calls as readonly CapturedCall[]).flatMap(callOf),
    finish: typeof finish === 'string' ? finish : null,
    output: Array.isArray(output) ? (output as readonly OutputItem[]) : [],
    error: (record(error)?.['type'] as string | undefined) ?? null,
  }
}

function callOf({ provider, status, reply_headers: headers, reply }: CapturedCall): RecordedCall[] {
  if (typeof provider !== 'string') return []
  const { text, base64, cut_after: cut, left_out: leftOut } = reply ?? {}
  if (cut !== undefined || leftOut !== undefined) return []
  const bytes = typeof base64 === 'string' ? Buffer.from(base64, 'base64') : Buffer.from(String(text ?? ''))
  const pairs = Array.isArray(headers) ? (headers as readonly (readonly [string, string])[]) : []
  const keptHeaders = pairs.filter(([name]) => /^(?:content-type|retry-after)$/i.test(name))
  return [
    {
      provider,
      status: typeof status === 'number' ? status : null,
      headers: Object.fromEntries(keptHeaders),
      reply: bytes,
    },
  ]
}
