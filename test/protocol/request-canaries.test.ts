/** A canary in every string of rich requests: what the encoders let out to a provider must have been looked at. */
import t from 'tap'
import { mapTexts } from '../../src/features/guardrails/texts/request-texts.ts'
import { sealCompaction } from '../../src/formats/anthropic-messages/blocks.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { type Endpoint, type FormatName, type Quirk, textFormat } from '../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'
import { ANNOTATIONS, type Fields, ITEMS, PARTS, SCHEMA, TOOLS } from '../support/request-items.ts'

const SECRET = 'Canary0780511'
const base64 = (text: string) => Buffer.from(text).toString('base64')
const QUIRKS: readonly Quirk[] = [
  'cache-control',
  'reasoning-object',
  'replay-reasoning',
  'thought-signatures',
]
const ENDPOINTS: readonly Endpoint[] = [
  ...(Object.keys(FORMATS) as FormatName[]).map(format => endpointOf(format, { slug: 'openai' })),
  endpointOf('openai-chat', { quirks: QUIRKS }),
]

/** What somebody may write into a string, and how it is found in a body. */
interface Canary {
  readonly form: string
  readonly write: (before: string) => string
  readonly found: readonly string[]
}
const TEXT = `the ${SECRET} sings`
const ESCAPED = [...TEXT].map(letter => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')
const plain = (form: string, text: string): Canary => ({ form, write: () => text, found: [SECRET] })
const file = (form: string, head: string): Canary => ({
  form,
  write: () => `${head}${base64(TEXT)}`,
  found: [SECRET, base64(TEXT)],
})
const CANARIES: readonly Canary[] = [
  plain('a sentence', TEXT),
  plain('a word', SECRET),
  plain('a link', `https://x.example/${SECRET}`),
  plain('no base64', `data:;base64,${TEXT}`),
  plain('no picture', `data:image/png;base64,${TEXT}`),
  plain('a percent-encoded file', `data:text/plain,the%20${SECRET}%20sings`),
  file('a text file', 'data:text/plain;base64,'),
  file('a JSON file', 'DATA:Application/JSON;charset=utf-8;base64,'),
  file('a file without a type', 'data:;base64,'),
  file('a file of an unknown type', 'data:application/x-unheard-of;base64,'),
  file('a file with a type to guess', 'data: image/png;base64,'),
  file('bare base64', ''),
  // These count where a format reads what is in them.
  {
    form: 'an open compaction',
    write: () => sealCompaction({ content: TEXT, signature: 'x' }),
    found: [SECRET],
  },
  { form: 'escaped JSON', write: () => `{"a":"${ESCAPED}"}`, found: [SECRET] },
]

/** Strings that may go out unseen, by their place and what is in them, and why. */
const UNSEEN: readonly { readonly why: string; readonly place: RegExp; readonly forms: RegExp }[] = [
  {
    why: 'ids, signatures and sealed contents are one word, and made up by those who read them',
    place: /(?:^|\.)(?:\w*_)?ids?(?:\[\])?$|\.(?:signature|encrypted_content|hash|container)$/,
    forms: /word|link|file|base64/,
  },
  {
    why: 'calls and choices go by names, which are one word',
    place:
      /(?:name|names\[\]|namespace|server_label|author|recipient|input\[\]\.format|allowed_tools\[\]|filters\.key)$/,
    forms: /word|link|bare base64/,
  },
  {
    why: 'tools of a choice are named by these',
    place: /^tool_choice\.tools\[\]\.(?:type|name)$/,
    forms: /word|link|bare base64/,
  },
  {
    why: 'names in settings of tools are one word',
    place: /^(?:tools|input)\[\].*\.(?:model|ranker|size|\w+_domains\[\])$/,
    forms: /word|link|bare base64/,
  },
  {
    why: 'what is behind a link is not known here',
    place: /(?:image_url|video_url|file_url|file_data)$/,
    forms: /link/,
  },
  {
    why: 'what is called a picture goes out as one, and none comes of it',
    place: /(?:image_url|video_url|file_url|file_data)$/,
    forms: /no picture/,
  },
  {
    why: 'sound and pictures are bytes',
    place: /\.input_audio\.data$|image_generation_call\.result$/,
    forms: /./,
  },
  {
    why: 'a word in base64 is a picture here, as far as anybody can tell',
    place: /(?:file_data)$/,
    forms: /a word/,
  },
  {
    why: 'a server of the caller is told these, and no model',
    place: /\.(?:server_url|authorization|headers\..*)$/,
    forms: /./,
  },
  { why: 'a reference in a schema is one word', place: /\.\$ref$/, forms: /word|link|file|base64/ },
]

const REFERRING = {
  ...SCHEMA,
  $defs: { one: { type: 'string', enum: ['a', 'b'] } },
  anyOf: [{ $ref: '#/$defs/one' }],
}
const USER = { role: 'user', content: 'hello' }
const CALL = {
  type: 'function_call',
  call_id: 'c',
  name: 'f',
  arguments: '{"a":"b"}',
  caller: { type: 'x', id: 'y' },
}
const unmarked = (value: unknown) => JSON.parse(JSON.stringify(value).replaceAll(/"[+-]/g, '"x')) as unknown

const REQUESTS: readonly Fields[] = [
  ...Object.entries(ITEMS).map(([type, item]) => ({ input: [USER, CALL, { type, ...item, call_id: 'c' }] })),
  { input: [CALL, { type: 'function_call_output', call_id: 'c', output: 'given' }] },
  ...PARTS.map(part => ({ input: [{ role: 'user', content: [part] }] })),
  ...PARTS.map(part => ({
    input: [USER, CALL, { type: 'function_call_output', call_id: 'c', output: [part] }],
  })),
  {
    input: [
      { role: 'assistant', content: [{ type: 'output_text', text: 'said', annotations: ANNOTATIONS }] },
      USER,
    ],
  },
  { input: [{ role: 'system', content: 'said' }, USER] },
  ...TOOLS.map(tool => ({ input: 'hello', tools: [tool] })),
  { input: 'hello', tools: [{ type: 'function', name: 'f', parameters: REFERRING, strict: true }] },
  {
    input: 'hello',
    tools: [
      {
        type: 'web_search',
        user_location: { type: 'approximate', city: 'c' },
        allowed_domains: ['a.example'],
      },
    ],
    tool_choice: { type: 'web_search' },
  },
  {
    input: 'hello',
    instructions: 'be good',
    metadata: { a: 'b' },
    prompt_cache_key: 'k',
    prompt_cache_options: { mode: 'explicit', ttl: '5m' },
    image_config: { style: 's', list: ['l'] },
    modalities: ['image', 'text'],
    reasoning: { effort: 'low' },
    cache_control: { type: 'ephemeral' },
    stop: ['a', 'b'],
    text: { format: { type: 'json_schema', name: 'n', schema: SCHEMA }, verbosity: 'low' },
    tools: [{ type: 'function', name: 'f', cache_control: { type: 'ephemeral' } }],
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'f' }] },
    user: 'u',
    session_id: 's',
    provider: { order: ['a'] },
    trace: { trace_id: 't' },
  },
  {
    input: 'hello',
    prediction: { type: 'content', content: 'x' },
    documents: [{ text: 'x', source: { type: 'base64', url: 'x' } }],
    chat_template: 'x',
    messages: [{ role: 'user', content: 'x', tool_calls: [{ id: 'x', function: { arguments: '{}' } }] }],
    response_format: { type: 'json_schema', json_schema: { name: 'x', schema: SCHEMA } },
  },
].map(fields => ({ model: 'a/b', ...(unmarked(fields) as Fields) }))

/** Fields that somebody may add to any object, called like fields that are no text elsewhere. */
const ADDED = [
  'note',
  'detail',
  'hash',
  'image_url',
  'file_id',
  'status',
  'name',
  'cache_control',
  'data',
  'url',
]

type Place = readonly (string | number)[]

function* stringsIn(value: unknown, place: Place = []): Generator<Place> {
  if (typeof value === 'string') yield place
  else if (Array.isArray(value))
    for (const [at, each] of value.entries()) yield* stringsIn(each, [...place, at])
  else if (typeof value === 'object' && value !== null) {
    for (const [key, each] of Object.entries(value)) yield* stringsIn(each, [...place, key])
    for (const key of ADDED) if (!(key in value)) yield [...place, key]
  }
}

function withText(value: unknown, [first, ...rest]: Place, write: (before: string) => string): unknown {
  if (first === undefined) return write(typeof value === 'string' ? value : '')
  if (Array.isArray(value))
    return value.map((each, at) => (at === first ? withText(each, rest, write) : each))
  const fields = value as Fields
  return { ...fields, [first]: withText(fields[first], rest, write) }
}

/** Indexes do not matter, and where it tells something the kind of the item does. */
function nameOf(place: Place, request: Fields): string {
  const steps = place.map(step => (typeof step === 'number' ? '[]' : `.${step}`)).join('')
  const item =
    place[0] === 'input' && typeof place[1] === 'number' ? (request['input'] as Fields[])[place[1]] : null
  return item?.['type'] === 'image_generation_call'
    ? `.image_generation_call.${String(place.at(-1))}`
    : steps.slice(1)
}

function attempt<Value>(work: () => Value): Value | null {
  try {
    return work()
  } catch {
    return null
  }
}

const bodyFor = (request: ResponsesRequest, endpoint: Endpoint) =>
  attempt(() =>
    JSON.stringify(
      FORMATS[textFormat(endpoint)].encode({ request, stream: false, endUser: null }, endpoint).body,
    ),
  )

interface Escape {
  readonly place: string
  readonly form: string
  readonly format: string
}

const allowed = ({ place, form }: Escape) =>
  UNSEEN.some(each => each.place.test(place) && each.forms.test(form))

for (const canary of CANARIES) {
  t.test(`nothing that goes out was unseen: ${canary.form}`, async t => {
    const escapes = new Map<string, Escape>()
    const broken = new Set<string>()
    let sent = 0
    const isIn = (text: string) => canary.found.some(each => text.includes(each))
    for (const fields of REQUESTS) {
      for (const place of stringsIn(fields)) {
        const request = attempt(() => parseResponsesRequest(withText(fields, place, canary.write)))
        if (request === null) continue
        let isSeen = false
        const redacted = mapTexts(request, text => {
          if (!isIn(text)) return text
          isSeen = true
          return canary.found.reduce((left, each) => left.replaceAll(each, '[GONE]'), text)
        })
        if (isSeen && attempt(() => parseResponsesRequest(redacted)) === null)
          broken.add(nameOf(place, fields))
        for (const endpoint of ENDPOINTS) {
          const body = bodyFor(request, endpoint)
          if (body === null || !isIn(body)) continue
          sent++
          const out = { place: nameOf(place, fields), form: canary.form, format: endpoint.format }
          if (!isSeen || isIn(bodyFor(redacted, endpoint) ?? '')) {
            if (!allowed(out)) escapes.set(out.place, out)
          }
        }
      }
    }
    t.ok(sent > 0, `${sent} went out`)
    t.same([...escapes.values()], [], 'none unseen, none that could not be taken out')
    // A name of an advisor or subagent that is no name any more is refused by the tool.
    broken.delete('tools[].parameters.name')
    t.same([...broken], [], 'what was taken out leaves a request')
  })
}
