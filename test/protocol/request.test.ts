import fc from 'fast-check'
import t from 'tap'
import { parseResponsesRequest } from '../support/dialects.ts'
import { search } from '../support/property.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'
import { accepted, body, input, MODEL, nested, refusalOf, refused } from './bodies.ts'
import { RICH } from './rich.ts'

/** No plain word, so that a key of this text is not repeated either. */
const SECRET = 'sk~secret~value'

const weather = {
  type: 'function',
  name: 'get_weather',
  description: 'Get the current weather for a location',
  parameters: { type: 'object', properties: { location: { type: 'string' } }, required: ['location'] },
}

t.test('the request comes out as it went in, unknown fields included', t => {
  const value = body({ future_field: { nested: [1] }, tools: [{ ...weather, vendor_hint: 'x' }] })
  t.equal(parseResponsesRequest(value), value)
  t.end()
})

t.test('requests that must be taken', t => {
  accepted(t, [
    ['a minimal request', body()],
    ['an empty input text', body({ input: '' })],
    ['models without model', { models: [MODEL, 'acme/slow-1'], input: 'Hello' }],
    ['model and models', body({ models: ['acme/slow-1'] })],
    ['a variant suffix', body({ model: 'acme/fast-1:nitro' })],
    ['stacked variant suffixes', body({ model: 'acme/fast-1:free:extended' })],
    ['a model that only contains a router name', body({ model: 'acme/auto' })],
    ['a model with online in its name', body({ model: 'acme/online' })],
    ['every feature at once', RICH],
    [
      'lowest sampling bounds',
      body({
        temperature: 0,
        top_p: 0,
        top_k: 0,
        frequency_penalty: -2,
        presence_penalty: -2,
        top_logprobs: 0,
        max_output_tokens: 1,
        max_tool_calls: 1,
      }),
    ],
    [
      'highest sampling bounds',
      body({
        temperature: 2,
        top_p: 1,
        top_k: 1e6,
        frequency_penalty: 2,
        presence_penalty: 2,
        top_logprobs: 20,
        max_tool_calls: 30,
      }),
    ],
    [
      'nulls where the interface has them',
      body({
        instructions: null,
        max_output_tokens: null,
        max_tool_calls: null,
        temperature: null,
        top_p: null,
        frequency_penalty: null,
        presence_penalty: null,
        top_logprobs: null,
        parallel_tool_calls: null,
        background: null,
        include: null,
        metadata: null,
        previous_response_id: null,
        service_tier: null,
        safety_identifier: null,
        prompt_cache_key: null,
        prompt_cache_options: null,
        provider: null,
        route: null,
        prompt: null,
        truncation: null,
        reasoning: null,
        store: null,
        stream: null,
      }),
    ],
    ['nothing stored, nothing in the background', body({ store: false, background: false })],
    [
      'the largest metadata',
      body({
        metadata: Object.fromEntries(
          Array.from({ length: 16 }, (_, index) => [`${index}`.padStart(64, 'k'), 'v'.repeat(512)]),
        ),
      }),
    ],
    [
      'metadata counted in characters',
      body({ metadata: { ['\u{1F600}'.repeat(64)]: '\u{1F600}'.repeat(512) } }),
    ],
    ['the longest user and session', body({ user: 'u'.repeat(256), session_id: '\u{1F600}'.repeat(256) })],
    [
      'one stop condition as an object',
      body({ stop_server_tools_when: { type: 'step_count_is', step_count: 3 } }),
    ],
    ['every service tier', body({ service_tier: 'ultrafast' })],
    ['an empty tool list', body({ tools: [] })],
    ['an empty plugin list', body({ plugins: [] })],
    ['a closed conversation field', body({ conversation: null })],
    ['no preset', body({ preset: null })],
    [
      'image settings of any key',
      body({ image_config: { aspect_ratio: '16:9', quality: 2, extra: [1, 'x'] } }),
    ],
    ['a trace with keys of its own', body({ trace: { trace_id: 't', tenant: { id: 1 } } })],
    ['a nested value of 64 levels', body({ trace: nested(63) })],
  ])
  t.end()
})

t.test('requests of the Open Responses compliance suite', t => {
  const say = (role: string, content: unknown, fields: object = {}) => ({
    type: 'message',
    role,
    content,
    ...fields,
  })
  const image = 'data:image/png;base64,iVBORw0KGgo='
  accepted(t, [
    ['basic-response', input(say('user', 'Say hello in exactly 3 words.'))],
    ['streaming-response', { ...input(say('user', 'Count from 1 to 5.')), stream: true }],
    [
      'system-prompt',
      input(say('system', 'You are a pirate. Always respond in pirate speak.'), say('user', 'Say hello.')),
    ],
    [
      'tool-calling',
      { ...input(say('user', "What's the weather like in San Francisco?")), tools: [weather] },
    ],
    ['tool-calling-streaming', { ...input(say('user', 'Weather?')), tools: [weather], stream: true }],
    [
      'image-input',
      input(
        say('user', [
          { type: 'input_text', text: 'What do you see?' },
          { type: 'input_image', image_url: image },
        ]),
      ),
    ],
    [
      'multi-turn',
      input(
        say('user', 'My name is Alice.'),
        say('assistant', 'Hello Alice! Nice to meet you.'),
        say('user', 'What is my name?'),
      ),
    ],
    [
      'assistant-phase',
      input(
        say('assistant', 'I should answer with the saved number.', { phase: 'commentary' }),
        say('assistant', 'The number is four.', { phase: 'final_answer' }),
        say('user', 'Repeat only the number.'),
      ),
    ],
    [
      'function-call-roundtrip, first turn',
      body({
        input: 'Use the weather tool.',
        tools: [weather],
        tool_choice: { type: 'function', name: 'get_weather' },
      }),
    ],
    [
      'file-input',
      input(
        say('user', [
          { type: 'input_text', text: 'Read.' },
          {
            type: 'input_file',
            filename: 'openresponses-fixture.pdf',
            file_data: 'data:application/pdf;base64,JVBERi0=',
          },
        ]),
      ),
    ],
    [
      'file-search',
      body({
        tools: [{ type: 'file_search', vector_store_ids: ['vs_1'] }],
        tool_choice: { type: 'file_search' },
        include: ['file_search_call.results'],
      }),
    ],
    [
      'offline-web-search without its include',
      body({
        tools: [{ type: 'web_search', external_web_access: false }],
        tool_choice: { type: 'web_search' },
      }),
    ],
    [
      'a turn with compacted output and no tools',
      {
        ...input({ type: 'compaction', id: 'cmp_1', encrypted_content: 'x' }, say('user', 'Go on.')),
        store: false,
        tools: [],
      },
    ],
  ])
  refused(t, [
    [
      'function-call-roundtrip, second turn, which needs storage',
      {
        ...input({ type: 'function_call_output', call_id: 'call_1', output: '64 degrees and clear' }),
        previous_response_id: 'resp_1',
      },
      'previous_response_id',
    ],
    [
      'offline-web-search with an include that nobody has',
      body({ include: ['web_search_call.everything'] }),
      'include[0]',
    ],
    ['compact-missing-model', { input: [say('user', 'x')] }, 'model'],
  ])
  t.end()
})

/** Files whose request the interface does not take, with the field it stops at. Each is a documented difference. */
const NOT_TAKEN: readonly (readonly [RegExp, string])[] = [
  // Nothing is stored.
  [/^openai\.pai\.openai-responses-background-mode/, 'background'],
  [/^openai\.pai\.openai-responses-compact-with-auto-previous-response-id/, 'input'],
  [/^openai\.pai\.openai-responses-openai-conversation-id/, 'conversation'],
  [/^openai\.rig\.streaming-grammar-previous-response-id-chain/, 'previous_response_id'],
]

t.test('recorded requests are taken, or refused for a documented reason', { skip: withoutRecordings }, t => {
  let taken = 0
  for (const recording of recordings('openai-responses')) {
    const request = recording.request()
    if (request === null) continue
    const documented = NOT_TAKEN.find(([name]) => name.test(recording.name))
    if (documented !== undefined) {
      refused(t, [[recording.name, request, documented[1]]])
      continue
    }
    const message = refusalOf(request)
    t.equal(message, null, recording.name)
    taken += message === null ? 1 : 0
  }
  t.ok(taken >= 85, 'most of them are taken')
  t.end()
})

t.test('no JSON value does anything but pass or give a 400 that repeats nothing', t => {
  const anyBody = fc.oneof(fc.jsonValue({ maxDepth: 5 }), mutated())
  fc.assert(
    fc.property(anyBody, value => {
      const message = refusalOf(JSON.parse(JSON.stringify(value)))
      return (
        message === null ||
        (/^[A-Za-z0-9_*[\].-]+: /.test(message) && !message.includes(SECRET) && message.length < 2500)
      )
    }),
    search(3000),
  )
  t.end()
})

t.test('a secret put anywhere into a good request is never repeated', t => {
  const paths = places(RICH)
  t.ok(paths.length > 150, 'the request has many places')
  let refusals = 0
  for (const path of paths) {
    for (const secret of [
      SECRET,
      [SECRET],
      { [SECRET]: SECRET, type: SECRET, id: SECRET, role: SECRET },
      { type: 'message', role: SECRET },
    ]) {
      const message = refusalOf(replaced(RICH, path, secret))
      if (message === null) continue
      refusals++
      if (message.includes(SECRET)) t.fail(`the secret is repeated: ${message}`)
    }
  }
  t.ok(refusals > 300, 'many of them were refused')
  t.end()
})

type Path = readonly (string | number)[]

/** Every place in a JSON value. */
function places(value: unknown, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [path]
  const keys = Array.isArray(value) ? [...value.keys()] : Object.keys(value)
  return [
    path,
    ...keys.flatMap(key => places((value as Record<string | number, unknown>)[key], [...path, key])),
  ]
}

function replaced(value: unknown, [key, ...rest]: Path, by: unknown): unknown {
  if (key === undefined) return by
  const copy = Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) }
  const holder = copy as Record<string | number, unknown>
  holder[key] = replaced(holder[key], rest, by)
  return copy
}

/** A good request with one to three places exchanged for something else. */
function mutated(): fc.Arbitrary<unknown> {
  const change = fc.tuple(
    fc.constantFrom(...places(RICH)),
    fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom(SECRET, '', 0, -1, null, [], {})),
  )
  return fc
    .array(change, { minLength: 1, maxLength: 3 })
    .map(changes =>
      changes.reduce<unknown>(
        (value, [path, by]) => (reachable(value, path) ? replaced(value, path, by) : value),
        RICH,
      ),
    )
}

function reachable(value: unknown, path: Path): boolean {
  if (path.length === 0) return true
  if (typeof value !== 'object' || value === null) return false
  const [key, ...rest] = path
  return (
    Object.hasOwn(value, key ?? '') && reachable((value as Record<string | number, unknown>)[key ?? ''], rest)
  )
}
