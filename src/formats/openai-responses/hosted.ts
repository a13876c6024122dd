/** Hosted items from a Responses provider: progress events that may be passed on, and searches to count. Pure. */
import { type Json, recordOrEmpty, remainder } from '../../base/json.ts'
import { STREAM_EVENT_TYPES } from '../../protocol/events.ts'

/** Documented progress events of hosted items. */
const PROGRESS_EVENTS: ReadonlySet<string> = new Set(
  STREAM_EVENT_TYPES.filter(type =>
    /^response\.(web_search|code_interpreter|image_generation|apply_patch|fusion)_call/.test(type),
  ),
)

/** Fields around every event; all others are its own. */
const ENVELOPE_FIELDS: ReadonlySet<string> = new Set([
  'type',
  'sequence_number',
  'item_id',
  'output_index',
  'obfuscation',
])

export function isProgress(type: string): boolean {
  return PROGRESS_EVENTS.has(type)
}

export function progressFields(event: Json): Json {
  return remainder(event, ENVELOPE_FIELDS) ?? {}
}

/** True for a new search: opening a found page belongs to an earlier one. */
export function isSearch(item: Json): boolean {
  if (item['type'] !== 'web_search_call') return false
  const action = recordOrEmpty(item['action'])['type']
  return action === undefined || action === 'search'
}
