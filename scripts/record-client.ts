/**
 * Makes the recordings of src/apps/prove/clients/recordings from the files that test/heavy/agents.test.ts wrote with
 * AGENTS_RECORD: removes long texts, thoughts, paths and ids, and stores only once what a request shares with the
 * previous one. `node scripts/record-client.ts NAME TITLE VERSION FOLDER`.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const [name = '', title = '', version = '', folder = ''] = process.argv.slice(2)
const KEPT_CHARS = 60
const HEADERS =
  /^(?:accept|user-agent|originator|session-id|thread-id|x-(?!api-key|goog-api-key).*|anthropic-.*)$/
/** Texts of these fields tell the model how to do its work; the form of a request does not change with them. */
const TOLD = new Set(['description', 'markdownDescription', '$schema'])

type Json = null | boolean | number | string | readonly Json[] | { readonly [name: string]: Json }

function plain(text: string): string {
  return text
    .replaceAll(
      /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g,
      '00000000-0000-4000-8000-000000000000',
    )
    .replaceAll(/\/tmp\/agent-\w+/g, '/home/user')
    .replaceAll(/\b[0-9a-f]{64}\b/g, '0'.repeat(64))
    .replaceAll(/\bses_\w+/g, 'ses_0')
    .replaceAll(/\b(?:agent|small)\/[a-z-]+/g, 'MODEL')
}

/** Thoughts are readable by their maker alone: who replays them elsewhere is refused. */
function isThought(value: Json): boolean {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return false
  const { type, thought } = value as { readonly [name: string]: Json }
  return type === 'thinking' || type === 'redacted_thinking' || type === 'reasoning' || thought === true
}

function small(value: Json, at: string): Json {
  if (typeof value === 'string') {
    const text = plain(value)
    if (text.length <= KEPT_CHARS || text.startsWith('{') || at === 'pattern') return text
    return `A text of ${text.length} characters`
  }
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.filter(each => !isThought(each)).map(each => small(each, at))
  return Object.fromEntries(
    Object.entries(value)
      .filter(
        ([field, inner]) =>
          !(TOLD.has(field) && typeof inner === 'string' && at !== 'properties' && !isNamed(value)) &&
          !['thoughtSignature', 'reasoning_content', 'reasoning_details', 'installation_id'].includes(field),
      )
      .map(([field, inner]) => [field, small(inner, field)]),
  )
}

/** A tool, whose description is a field of its own. */
function isNamed(value: object): boolean {
  return 'name' in value && typeof value.name === 'string'
}

interface Recorded {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: { readonly [name: string]: Json } | null
}

let before: Readonly<Record<string, string>> = {}
const requests = readdirSync(folder)
  .filter(file => file.endsWith('.json'))
  .sort()
  .map(file => {
    const { method, path, headers, body } = JSON.parse(readFileSync(join(folder, file), 'utf8')) as Recorded
    const kept = body === null ? null : (small(body, '') as { readonly [name: string]: Json })
    const changed =
      kept === null
        ? null
        : Object.fromEntries(
            Object.entries(kept).filter(([field, value]) => before[field] !== JSON.stringify(value)),
          )
    const dropped = kept === null ? [] : Object.keys(before).filter(field => !Object.hasOwn(kept, field))
    if (kept !== null)
      before = Object.fromEntries(
        Object.entries(kept).map(([field, value]) => [field, JSON.stringify(value)]),
      )
    return {
      method,
      path: plain(path),
      headers: Object.fromEntries(
        Object.entries(headers)
          .filter(([field]) => HEADERS.test(field))
          .map(([field, value]) => [field, plain(value)]),
      ),
      ...(dropped.length === 0 ? {} : { dropped }),
      body: changed,
    }
  })
const file = join(import.meta.dirname, `../src/prove/clients/recordings/${name}.json`)
// One request a line: small, and still to be compared.
const rows = requests.map(request => JSON.stringify(request)).join(',\n')
writeFileSync(file, `{"client":${JSON.stringify(title)},"version":"${version}","requests":[\n${rows}\n]}\n`)
