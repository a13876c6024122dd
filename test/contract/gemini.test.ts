/** The door of Google's clients over real HTTP: addresses, keys, spellings, kinds of parts, streams and failures. */
import t from 'tap'
import { METADATA } from '../support/dialect-clients.ts'
import { FORMATS, goldenReply, pieces, speaking } from '../support/provider.ts'
import { startDialectGateway } from '../support/world.ts'

type Loose = Record<string, unknown>

const { gateway, parrot, replay } = await startDialectGateway(t)

const root = `http://127.0.0.1:${gateway.port}`
const KEY = { 'x-goog-api-key': gateway.apiKey }
const HELLO = [{ role: 'user', parts: [{ text: 'Hello' }] }]

function post(path: string, body: unknown, headers: Record<string, string> = KEY): Promise<Response> {
  return fetch(root + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
}

/** The answer of a model, whole. */
async function asked(model: string, body: Loose, headers: Record<string, string> = KEY): Promise<Loose> {
  return (await (await post(`/v1beta/models/${model}:generateContent`, body, headers)).json()) as Loose
}

const lastAsked = (): Loose => JSON.parse(parrot.bodies.at(-1) ?? '') as Loose

function partsOf(answer: Loose): readonly Loose[] {
  const [candidate] = answer['candidates'] as { content: { parts: Loose[] } }[]
  return candidate?.content.parts ?? []
}

t.test('every address of a model finds it, and either header has the key', async t => {
  const body = { contents: HELLO }
  for (const path of [
    '/v1beta/models/sim/echo:generateContent',
    '/v1beta/sim/echo:generateContent',
    '/v1beta/models/sim%2Fecho:generateContent',
    '/v1beta/models/models/sim/echo:generateContent',
    '/v1/models/sim/echo:generateContent',
    '/v1alpha/models/sim/echo:generateContent',
    '/api/v1/models/sim/echo:generateContent',
    '/v1beta/models/sim/echo:generateContent/',
  ]) {
    for (const headers of [KEY, { authorization: `Bearer ${gateway.apiKey}` }]) {
      const reply = await post(path, body, headers as Record<string, string>)
      t.equal(reply.status, 200, path)
      t.match(partsOf((await reply.json()) as Loose), [{ text: 'Hello' }])
    }
  }
})

t.test(
  'an address is refused where it could be read in two ways, or has a verb that is not there',
  async t => {
    for (const [path, status] of [
      ['/v1beta/models/sim%2f%2e%2e%2fecho:generateContent', 400],
      ['/v1beta/models/sim/echo:predict', 405],
      ['/v1beta/models/:generateContent', 400],
      ['/v1beta/tunedModels', 404],
      ['/v1beta', 404],
    ] as const) {
      const reply = await post(path, { contents: HELLO })
      t.equal(reply.status, status, path)
      const word = status === 404 ? 'NOT_FOUND' : 'INVALID_ARGUMENT'
      t.match(await reply.json(), { error: { code: status, status: word, details: Array } }, path)
    }
    const wrong = await fetch(`${root}/v1beta/models/sim/echo:generateContent`, { headers: KEY })
    t.equal(wrong.status, 405)
  },
)

t.test('a key in the query is refused, and stands nowhere', async t => {
  const secret = 'sk-gw-v1-thisisnotakey'
  for (const name of ['key', 'access_token', 'k%65y']) {
    const reply = await post(
      `/v1beta/models/sim/echo:generateContent?${name}=${secret}`,
      { contents: HELLO },
      {},
    )
    t.equal(reply.status, 400)
    const text = await reply.text()
    t.match(JSON.parse(text), { error: { code: 400, status: 'INVALID_ARGUMENT', message: /x-goog-api-key/ } })
    t.notMatch(text, secret)
  }
  const listed = await fetch(`${root}/v1beta/models?key=${secret}`)
  t.equal(listed.status, 400)
  t.notMatch(JSON.stringify(gateway.lines), secret)
})

t.test('fields may be written as protocol buffers write them', async t => {
  parrot.parts = speaking('fine')
  const image = { mime_type: 'image/png', data: 'iVBORw0KGgo=' }
  await asked('parrot/google-gemini', {
    contents: [{ role: 'user', parts: [{ inline_data: image }, { text: 'Look' }] }],
    system_instruction: { parts: [{ text: 'Be brief' }] },
    generation_config: { max_output_tokens: 9, top_p: 0.5, thinking_config: { include_thoughts: true } },
    tools: [
      {
        function_declarations: [
          { name: 'get', parameters: { type: 'OBJECT', properties: { my_arg: { type: 'STRING' } } } },
        ],
      },
    ],
    tool_config: { function_calling_config: { mode: 'NONE' } },
    safety_settings: [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }],
  })
  t.match(lastAsked(), {
    contents: [{ parts: [{ inlineData: { mimeType: 'image/png' } }, { text: 'Look' }] }],
    systemInstruction: { parts: [{ text: 'Be brief' }] },
    generationConfig: { maxOutputTokens: 9, topP: 0.5, thinkingConfig: { includeThoughts: true } },
    tools: [
      { functionDeclarations: [{ parametersJsonSchema: { properties: { my_arg: { type: 'string' } } } }] },
    ],
    toolConfig: { functionCallingConfig: { mode: 'NONE' } },
    safetySettings: [{ category: 'HARM_CATEGORY_HARASSMENT' }],
  })
})

/** What only providers of this API know: as it came there, and 400 elsewhere that names it. */
const OWN: readonly (readonly [name: string, body: Loose, path: string])[] = [
  [
    'an unknown kind of part',
    { contents: [{ role: 'user', parts: [{ text: 'x' }, { hologram: { depth: 3 } }] }] },
    'contents[0].parts[1]',
  ],
  [
    'an unknown kind of part alone',
    { contents: [{ role: 'user', parts: [{ hologram: { depth: 3 } }] }] },
    'contents[0].parts[0]',
  ],
  ['cached content', { contents: HELLO, cachedContent: 'cachedContents/7' }, 'cachedContent'],
  [
    'a tool of Google',
    { contents: HELLO, tools: [{ googleMaps: { enableWidget: true } }] },
    'tools[0].googleMaps',
  ],
  [
    'a word of an enumeration',
    {
      contents: HELLO,
      generationConfig: { responseMimeType: 'text/x.enum', responseSchema: { type: 'STRING', enum: ['a'] } },
    },
    'generationConfig.responseMimeType',
  ],
]

for (const [name, body, path] of OWN) {
  t.test(`${name} goes to Gemini as it came, and is 400 elsewhere`, async t => {
    parrot.parts = speaking('fine')
    for (const format of FORMATS) {
      const before = parrot.bodies.length
      const reply = await post(`/v1beta/models/parrot/${format}:generateContent`, body)
      const answer = (await reply.json()) as { error: Loose }
      if (format === 'google-gemini') {
        t.equal(reply.status, 200)
        t.match(lastAsked(), body)
        continue
      }
      t.equal(reply.status, 400, format)
      t.match(answer.error, { status: 'INVALID_ARGUMENT', message: `${path}: ` })
      t.equal(parrot.bodies.length, before, 'nobody was asked')
    }
  })
}

t.test('settings that only tune go to Gemini, and others do without', async t => {
  parrot.parts = speaking('fine')
  const body = {
    contents: HELLO,
    safetySettings: [{ category: 'HARM_CATEGORY_HARASSMENT', threshold: 'BLOCK_NONE' }],
    generationConfig: { mediaResolution: 'MEDIA_RESOLUTION_LOW' },
    labels: { team: 'a' },
  }
  for (const format of FORMATS) {
    const answer = await asked(`parrot/${format}`, body, { ...KEY, ...METADATA })
    t.match(partsOf(answer), [{ text: 'fine' }], format)
    const sent = JSON.stringify(lastAsked())
    if (format === 'google-gemini') t.match(lastAsked(), body)
    else {
      for (const word of ['HARM_', 'MEDIA_', 'team']) t.notMatch(sent, word, format)
      t.match(JSON.stringify(answer['gateway_metadata']), 'safetySettings', 'it is told')
    }
  }
})

t.test('the filler in place of a signature goes to Gemini as it is, and nowhere else', async t => {
  const filler = 'skip_thought_signature_validator'
  const contents = [
    ...HELLO,
    {
      role: 'model',
      parts: [{ functionCall: { name: 'get', args: {}, id: 'c1' }, thoughtSignature: filler }],
    },
    { role: 'user', parts: [{ functionResponse: { name: 'get', id: 'c1', response: { output: 'x' } } }] },
  ]
  parrot.parts = speaking('fine')
  for (const format of FORMATS) {
    await asked(`parrot/${format}`, { contents })
    const sent = JSON.stringify(lastAsked())
    t.equal(sent.includes(filler), format === 'google-gemini', format)
  }
})

t.test('a real signature of a call goes back to its place', async t => {
  const contents = [
    ...HELLO,
    {
      role: 'model',
      parts: [
        { text: 'Let me see', thoughtSignature: `${'dGV4dA'.repeat(10)}==` },
        { functionCall: { name: 'get', args: { a: 1 }, id: 'c1' }, thoughtSignature: 'Y2FsbA==' },
      ],
    },
    { role: 'user', parts: [{ functionResponse: { name: 'get', id: 'c1', response: { a: [1] } } }] },
  ]
  parrot.parts = speaking('fine')
  await asked('parrot/google-gemini', { contents })
  t.match(lastAsked()['contents'], contents)
  await asked('parrot/anthropic-messages', { contents })
  t.notMatch(JSON.stringify(lastAsked()), 'Y2FsbA==')
})

t.test(
  'every signature of a reply of Gemini goes back to Gemini in the next turn, and to no other provider',
  async t => {
    const signed = [
      'signature-on-text-after-thoughts',
      'signature-alone',
      'parallel-calls',
      'thoughts-then-text',
    ]
    for (const name of signed) {
      const golden = goldenReply('google-gemini', name)
      const given = [...golden.bytes.toString().matchAll(/"thoughtSignature": ?"([^"]+)"/g)].map(
        ([, one]) => one,
      )
      t.ok(given.length > 0, name)
      replay.next.push(golden)
      const reply = await post('/v1beta/models/replay/google-gemini:streamGenerateContent', {
        contents: HELLO,
      })
      const chunks = (await reply.json()) as { candidates: { content: { parts: Loose[] } }[] }[]
      const parts = chunks.flatMap(({ candidates: [candidate] }) => candidate?.content.parts ?? [])
      const results = parts.flatMap(({ functionCall }) =>
        functionCall === undefined
          ? []
          : [{ functionResponse: { ...(functionCall as Loose), response: {} } }],
      )
      const contents = [
        ...HELLO,
        { role: 'model', parts: parts.filter(part => part['thought'] !== true) },
        { role: 'user', parts: results.length === 0 ? [{ text: 'And?' }] : results },
      ]
      for (const format of ['google-gemini', 'anthropic-messages'] as const) {
        replay.next.push(goldenReply(format, format === 'google-gemini' ? name : 'citations'))
        await (await post(`/v1beta/models/replay/${format}:streamGenerateContent`, { contents })).text()
        const sent = JSON.stringify(replay.asked.at(-1))
        for (const one of given)
          t.equal(sent.includes(`"${one}"`), format === 'google-gemini', `${name} ${format}`)
      }
    }
  },
)

t.test('tools that Google runs are its own at Gemini, and tools of the gateway elsewhere', async t => {
  parrot.parts = speaking('fine')
  const body = { contents: HELLO, tools: [{ googleSearch: {} }, { urlContext: {} }, { codeExecution: {} }] }
  await asked('parrot/google-gemini', body)
  const sent = (lastAsked()['tools'] as Loose[]).flatMap(tool => Object.keys(tool))
  t.same(sent.toSorted(), ['codeExecution', 'googleSearch', 'urlContext'])
  await asked('parrot/openai-chat', { contents: HELLO, tools: [{ urlContext: {} }] })
  t.match(lastAsked()['tools'], [{ function: { name: 'web_fetch' } }])
})

t.test('citations and searches of any provider are grounding', async t => {
  const support = { segment: { startIndex: Number, endIndex: Number }, groundingChunkIndices: [Number] }
  for (const [format, name] of [
    ['google-gemini', 'grounding'],
    ['openai-chat', 'annotations'],
    ['anthropic-messages', 'citations'],
  ] as const) {
    replay.next.push(goldenReply(format, name))
    const reply = await post(`/v1beta/models/replay/${format}:streamGenerateContent`, { contents: HELLO })
    const chunks = (await reply.json()) as Loose[]
    t.match(
      chunks.at(-1),
      {
        candidates: [
          {
            groundingMetadata: {
              groundingChunks: [{ web: { uri: /^https?:/, title: String } }],
              groundingSupports: [support],
            },
          },
        ],
      },
      `${format} ${name}`,
    )
  }
})

t.test('prompts of the tools of a provider are told apart, and are part of the whole', async t => {
  replay.next.push(goldenReply('google-gemini', 'usage-in-every-chunk'))
  const reply = await post('/v1beta/models/replay/google-gemini:streamGenerateContent', { contents: HELLO })
  const chunks = (await reply.json()) as { usageMetadata?: Loose }[]
  t.match(chunks.at(-1)?.usageMetadata, {
    promptTokenCount: 10,
    toolUsePromptTokenCount: 4,
    cachedContentTokenCount: 6,
    candidatesTokenCount: 3,
    thoughtsTokenCount: 2,
    totalTokenCount: 19,
  })
  replay.next.push(goldenReply('google-gemini', 'usage-in-every-chunk'))
  const own = await gateway.respond({ model: 'replay/google-gemini', input: 'Hello', stream: true })
  const told = await own.text()
  t.match(told, /"input_tokens":14/)
  t.notMatch(told, 'toolUse')
})

t.test('the call of a tool that the gateway ran comes back with the next turn', async t => {
  const tools = [{ type: 'gateway:datetime', parameters: { timezone: 'UTC' } }]
  const first = await asked('sim/call', { contents: HELLO, tools })
  const contents = [...HELLO, (first['candidates'] as { content: Loose }[])[0]?.content, ...HELLO]
  parrot.parts = speaking('fine')
  await asked('parrot/openai-chat', { contents })
  t.match(lastAsked()['messages'], [
    { role: 'user' },
    { role: 'assistant', tool_calls: [{ function: { name: 'datetime' } }] },
    { role: 'tool', content: /datetime/ },
    { role: 'assistant' },
    { role: 'user' },
  ])
})

t.test('a prompt that a provider blocked is an answer without candidates', async t => {
  for (const verb of ['generateContent', 'streamGenerateContent?alt=sse', 'streamGenerateContent']) {
    replay.next.push(goldenReply('google-gemini', 'fail-prompt-blocked'))
    const reply = await post(`/v1beta/models/replay/google-gemini:${verb}`, { contents: HELLO })
    t.equal(reply.status, 200, verb)
    const text = await reply.text()
    const answer: unknown = JSON.parse(text.replace(/^data: /, ''))
    t.match(Array.isArray(answer) ? answer[0] : answer, {
      promptFeedback: { blockReason: /^[A-Z_]+$/, blockReasonMessage: String },
    })
  }
})

t.test('an event stream has lines of data alone; a failure is its last chunk, bare', async t => {
  const told = async (model: string, verb: string): Promise<string> =>
    (await post(`/v1beta/models/${model}:${verb}`, { contents: HELLO })).text()
  const whole = await told('sim/echo', 'streamGenerateContent?alt=sse')
  t.match(whole, /^(?:data: \{.*\}\n\n)+$/)
  const failed = await told('sim/fail-error-in-stream', 'streamGenerateContent?alt=sse')
  t.match(failed, /^(?:data: \{.*\}\n\n)+\{"error":\{.*\}$/)
  const list = JSON.parse(await told('sim/fail-error-in-stream', 'streamGenerateContent')) as Loose[]
  t.match(list.at(-1), { error: { code: Number, status: String } })
  t.match(list[0], { candidates: Array })
})

t.test('usage, routing and the record are those of every request', async t => {
  parrot.parts = [
    { kind: 'reasoning', form: 'text', pieces: pieces('They ', 'greet.') },
    ...speaking('Hel', 'lo'),
  ]
  for (const format of FORMATS) {
    const reply = await post(
      `/v1beta/models/parrot/${format}:generateContent`,
      { contents: HELLO },
      { ...KEY, ...METADATA },
    )
    const answer = (await reply.json()) as { usageMetadata: Record<string, number>; responseId: string }
    const {
      promptTokenCount = 0,
      candidatesTokenCount = 0,
      thoughtsTokenCount = 0,
      totalTokenCount,
    } = answer.usageMetadata
    t.equal(promptTokenCount + candidatesTokenCount + thoughtsTokenCount, totalTokenCount, format)
    t.match(answer, { gateway_metadata: { requested: `parrot/${format}` }, provider: 'parrot' })
    t.equal(reply.headers.get('x-generation-id'), answer.responseId)
    await gateway.shipper.ship()
    const record = await fetch(`${gateway.url}/generation?id=${answer.responseId}`, { headers: KEY })
    t.match(await record.json(), { data: { model: `parrot/${format}`, tokens_prompt: promptTokenCount } })
  }
})

t.test('models are listed to clients of Google below /v1 too', async t => {
  const google = (await (await fetch(`${root}/v1/models?pageSize=3`, { headers: KEY })).json()) as Loose
  t.match(google, { models: [{ name: /^models\// }, {}, {}], nextPageToken: String })
  const ours = await fetch(`${root}/v1/models`, { headers: { authorization: `Bearer ${gateway.apiKey}` } })
  t.match(await ours.json(), { data: Array, total_count: Number })
  const missing = await fetch(`${root}/v1/models/no/body`, { headers: KEY })
  t.equal(missing.status, 404)
  t.match(await missing.json(), { error: { code: 404, status: 'NOT_FOUND' } })
  const odd = await fetch(`${root}/v1beta/models?pageToken=x`, { headers: KEY })
  t.match(await odd.json(), { error: { code: 400, message: /^pageToken: / } })
})
