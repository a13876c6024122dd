import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import { googleGemini } from '../../../src/formats/google-gemini.ts'
import { outgoingRequest } from '../../../src/formats/outgoing.ts'
import type { Endpoint } from '../../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { parseResponsesRequest } from '../../support/dialects.ts'
import { type Differences, endpointOf } from '../../support/endpoint.ts'
import { functionCall as call, functionOutput as output } from './input-items.ts'

function endpoint(upstreamModel = 'gemini-2.5-flash', more: Differences = {}): Endpoint {
  return endpointOf('google-gemini', { ...more, upstreamModel })
}

/** Requests pass the same check as a client's, so that no test encodes what could never arrive. */
function encode(body: Record<string, unknown>, at = endpoint(), stream = false) {
  const request: ResponsesRequest = parseResponsesRequest({ model: 'google/gemini', input: 'Hi', ...body })
  return googleGemini.encode({ request, stream, endUser: 'hash-of-user' }, at)
}

const bodyOf = (body: Record<string, unknown>, at?: Endpoint) => encode(body, at).body
const user = (...parts: unknown[]) => ({ role: 'user', parts })
const text = (value: string) => ({ text: value })
const fn = (name: string, more: Record<string, unknown> = {}) => ({ type: 'function', name, ...more })

t.test('where a request goes', async t => {
  t.equal(encode({}).path, '/models/gemini-2.5-flash:generateContent')
  t.equal(
    encode({ stream: true }, endpoint('publishers/google/models/gemini-3-pro'), true).path,
    '/publishers/google/models/gemini-3-pro:streamGenerateContent?alt=sse',
  )
  t.equal(encode({}, endpoint('a?alt=x#y%2f')).path, '/models/a%3Falt%3Dx%23y%252f:generateContent')
  t.throws(() => encode({}, endpoint('../../secrets')), { code: 'unprocessable' })
})

t.test('instructions', async t => {
  const both = bodyOf({
    instructions: 'Be brief.',
    input: [
      { role: 'system', content: 'One.' },
      { role: 'user', content: 'Hi' },
      { role: 'developer', content: [{ type: 'input_text', text: 'Two.' }] },
    ],
  })
  t.strictSame(both['systemInstruction'], { parts: [text('Be brief.'), text('One.'), text('Two.')] })
  t.strictSame(both['contents'], [user(text('Hi'))])
  const alone = bodyOf({ instructions: 'Say hello.', input: '' })
  t.strictSame(alone, { contents: [user(text('Say hello.'))] }, 'instructions alone are the prompt')
})

t.test('generation config', async t => {
  const cases: readonly [Record<string, unknown>, unknown][] = [
    [{}, undefined],
    [
      {
        temperature: 0,
        top_p: 0.5,
        top_k: 40,
        max_output_tokens: 9,
        presence_penalty: -1,
        frequency_penalty: 0.5,
        seed: 7,
        stop: ['a', '', 'b'],
      },
      {
        temperature: 0,
        topP: 0.5,
        topK: 40,
        maxOutputTokens: 9,
        presencePenalty: -1,
        frequencyPenalty: 0.5,
        seed: 7,
        stopSequences: ['a', 'b'],
      },
    ],
    [{ stop: 'x', seed: null, temperature: null, top_k: null }, { stopSequences: ['x'] }],
    [{ stop: [], seed: 1e300 }, undefined],
    [{ logit_bias: { 5: 1 }, min_p: 0.1, top_a: 0.1, repetition_penalty: 1.1 }, undefined],
    [{ top_logprobs: 3 }, { responseLogprobs: true, logprobs: 3 }],
    [{ top_logprobs: 0 }, undefined],
    [{ text: { format: { type: 'text' }, verbosity: 'low' } }, undefined],
    [{ text: { format: { type: 'json_object' } } }, { responseMimeType: 'application/json' }],
    [
      {
        text: {
          format: {
            type: 'json_schema',
            name: 'n',
            strict: true,
            schema: {
              $schema: 'https://json-schema.org/x',
              type: 'object',
              additionalProperties: false,
              $defs: { a: {} },
            },
          },
        },
      },
      {
        responseMimeType: 'application/json',
        responseJsonSchema: { type: 'object', additionalProperties: false, $defs: { a: {} } },
      },
    ],
    [{ modalities: ['text'] }, undefined],
    [{ modalities: ['text', 'image'] }, { responseModalities: ['TEXT', 'IMAGE'] }],
    [
      { modalities: ['image'], image_config: { aspect_ratio: '16:9', image_size: '2K', quality: 'high' } },
      { responseModalities: ['IMAGE'], imageConfig: { aspectRatio: '16:9', imageSize: '2K' } },
    ],
    [
      {
        image_config: { size: '1536x1024', output_format: 'jpg', output_compression: 80, background: 'auto' },
      },
      {
        imageConfig: {
          aspectRatio: '3:2',
          imageOutputOptions: { mimeType: 'image/jpeg', compressionQuality: 80 },
        },
      },
    ],
    [
      { image_config: { size: '4K', person_generation: 'allow_none' } },
      { imageConfig: { imageSize: '4K', personGeneration: 'allow_none' } },
    ],
  ]
  for (const [body, config] of cases)
    t.strictSame(bodyOf(body)['generationConfig'], config, JSON.stringify(body))
})

t.test('a whole body', async t => {
  const body = bodyOf({
    instructions: 'Be brief.',
    tools: [fn('f')],
    tool_choice: 'required',
    reasoning: { effort: 'low' },
    max_output_tokens: 10_000,
  })
  t.strictSame(body, {
    systemInstruction: { parts: [text('Be brief.')] },
    contents: [user(text('Hi'))],
    tools: [{ functionDeclarations: [{ name: 'f' }] }],
    toolConfig: { functionCallingConfig: { mode: 'ANY' } },
    generationConfig: {
      maxOutputTokens: 10_000,
      thinkingConfig: { includeThoughts: true, thinkingBudget: 2000 },
    },
  })
})

t.test('what Gemini cannot express is refused by its path', async t => {
  const saying = (part: object, role = 'user') => ({ input: [{ role, content: [part] }] })
  const cases: readonly [Record<string, unknown>, string][] = [
    [{ tools: [fn('f'), { type: 'file_search', vector_store_ids: ['v'] }] }, 'tools[1].type: '],
    [{ tools: [{ type: 'custom', name: 'c' }] }, 'tools[0].type: '],
    [{ tools: [{ type: 'namespace', name: 'n', description: 'd', tools: [] }] }, 'tools[0].type: '],
    [{ tools: [{ type: 'mcp', server_label: 'l', server_url: 'https://x.example' }] }, 'tools[0].type: '],
    [{ tools: [{ type: 'image_generation' }] }, 'tools[0].type: '],
    [
      { tools: [{ type: 'web_search', filters: { allowed_domains: ['a.example'] } }] },
      'tools[0].filters.allowed_domains: ',
    ],
    [{ tools: [{ type: 'web_search', excluded_domains: ['a.example'] }] }, 'tools[0].excluded_domains: '],
    [{ tool_choice: 'required', tools: [{ type: 'web_search' }] }, 'tool_choice: '],
    [
      { tool_choice: { type: 'web_search_preview' }, tools: [{ type: 'web_search_preview' }] },
      'tool_choice.type: ',
    ],
    [{ input: '' }, 'input: '],
    [{ input: [{ role: 'user', content: 'a' }, output('nowhere', 'x')] }, 'input[1].call_id: '],
    [{ input: [{ type: 'compaction', encrypted_content: 'sealed' }] }, 'input[0].type: '],
    [{ input: [{ type: 'additional_tools', role: 'developer', tools: [] }] }, 'input[0].type: '],
    [
      saying({ type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,QQ==' }, 'system'),
      'input[0].content: ',
    ],
    [saying({ type: 'input_image', detail: 'auto', file_id: 'file-7' }), 'input[0].content[0].file_id: '],
    [
      saying({ type: 'input_image', detail: 'auto', image_url: 'file:///etc/passwd' }),
      'input[0].content[0].image_url: ',
    ],
    [
      saying({ type: 'input_image', detail: 'auto', image_url: 'data:;base64,QQ==' }),
      'input[0].content[0].image_url: ',
    ],
    [
      saying({ type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64' }),
      'input[0].content[0].image_url: ',
    ],
    [
      saying({ type: 'input_file', filename: 'a.txt', file_data: 'data:text/plain,%zz' }),
      'input[0].content[0].file_data: ',
    ],
    [
      { input: [call('1'), output('1', [{ type: 'input_file', file_id: 'f' }])] },
      'input[1].output[0].file_id: ',
    ],
  ]
  for (const [body, path] of cases) {
    try {
      encode(body)
      t.fail(`${JSON.stringify(body)} was encoded`)
    } catch (thrown) {
      t.type(thrown, GatewayError)
      const { code, message } = thrown as GatewayError
      t.equal(code, 'unprocessable')
      t.ok(message.startsWith(path), `${message} begins with ${path}`)
    }
  }
})

t.test('fields of the gateway and of nobody stay in the house', async t => {
  const plain = encode({ input: 'Hi' })
  const fields: Record<string, unknown> = {
    input: 'Hi',
    model: 'google/gemini',
    models: ['google/gemini', 'x/y'],
    metadata: { secret: 'm' },
    user: 'u-1',
    safety_identifier: 's-1',
    session_id: 'sess',
    prompt_cache_key: 'k',
    trace: { trace_id: 't' },
    provider: { order: ['google-ai-studio'] },
    plugins: [{ id: 'web' }],
    service_tier: 'flex',
    store: false,
    include: ['reasoning.encrypted_content'],
    truncation: 'auto',
    debug: { echo_upstream_body: true },
    parallel_tool_calls: false,
    stop_server_tools_when: [{ type: 'step_count_is', step_count: 1 }],
    cache_control: { type: 'ephemeral' },
    unknown_field: { a: 1 },
  }
  const request = fields as unknown as ResponsesRequest
  const asked = { request: outgoingRequest(request, googleGemini, 'responses'), stream: false }
  const full = googleGemini.encode({ ...asked, endUser: 'hash-of-user' }, endpoint())
  t.strictSame(full, plain)
  t.equal(full.headers, undefined)
})

t.test('encoding leaves the request as it was', async t => {
  const request = parseResponsesRequest({
    model: 'google/gemini',
    input: [call('1'), output('1', 'x'), { role: 'user', content: 'a' }],
    tools: [fn('f', { parameters: { $schema: 'x', type: 'object' } })],
    text: { format: { type: 'json_schema', name: 'n', schema: { $schema: 'x', type: 'object' } } },
  })
  const before = structuredClone(request)
  googleGemini.encode({ request, stream: true, endUser: null }, endpoint('gemini-3-pro'))
  t.strictSame(request, before)
})

t.test('how replies are framed', async t => {
  t.equal(googleGemini.framing(true), 'sse')
  t.equal(googleGemini.framing(false), 'json')
  t.equal(googleGemini.name, 'google-gemini')
})
