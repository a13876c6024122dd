/** What a provider of the Responses format ran by itself: progress that may leave, and searches to count. Pure. */
import { STREAM_EVENT_TYPES } from '../../protocol/events.ts'
import { type Json, recordOrEmpty, remainder } from '../json.ts'

/** Events of hosted items in the documented list. */
const PROGRESS: ReadonlySet<string> = new Set(
  STREAM_EVENT_TYPES.filter(type =>
    /^response\.(web_search|code_interpreter|image_generation|apply_patch|fusion)_call/.test(type),
  ),
)

/** What envelopes an event; the rest is its own. */
const ENVELOPE: ReadonlySet<string> = new Set([
  'type',
  'sequence_number',
  'item_id',
  'output_index',
  'obfuscation',
])

export function isProgress(type: string): boolean {
  return PROGRESS.has(type)
}

export function progressFields(event: Json): Json {
  return remainder(event, ENVELOPE) ?? {}
}

/** True for an item that is a search of its own: opening a found page belongs to a search already counted. */
export function isSearch(item: Json): boolean {
  if (item['type'] !== 'web_search_call') return false
  const action = recordOrEmpty(item['action'])['type']
  return action === undefined || action === 'search'
}
