import t from 'tap'
import { GatewayError } from '../../src/errors.ts'
import { googleGemini } from '../../src/formats/google-gemini.ts'
import { parseResponsesRequest, type ResponsesRequest } from '../../src/protocol/request.ts'
import type { Endpoint, Provider } from '../../src/providers/provider.ts'

const provider: Provider = {
  slug: 'google-ai-studio',
  name: 'Google AI Studio',
  format: 'google-gemini',
  baseUrl: 'https://generativelanguage.example/v1beta',
  auth: 'x-goog-api-key',
  apiKey: null,
  quirks: [],
  headers: {},
  onAbort: 'cancel',
}

function endpoint(upstreamModel = 'gemini-2.5-flash', more: Partial<Endpoint> = {}): Endpoint {
  return {
    modelId: 'google/gemini',
    upstreamModel,
    provider,
    format: 'google-gemini',
    pricing: {
      prompt: 0n,
      completion: 0n,
      request: 0n,
      inputCacheRead: null,
      inputCacheWrite: null,
    } as unknown as Endpoint['pricing'],
    contextLength: null,
    maxOutputTokens: null,
    region: null,
    zdr: false,
    quantization: 'unknown',
    supportedParameters: null,
    ...more,
  }
}

/** Requests pass the same check as a client's, so that no test encodes what could never arrive. */
function encode(body: Record<string, unknown>, at = endpoint(), stream = false) {
  const request: ResponsesRequest = parseResponsesRequest({ model: 'google/gemini', input: 'Hi', ...body })
  return googleGemini.encode({ request, stream, endUser: 'hash-of-user' }, at)
}

const bodyOf = (body: Record<string, unknown>, at?: Endpoint) => encode(body, at).body
const user = (...parts: unknown[]) => ({ role: 'user', parts })
const model = (...parts: unknown[]) => ({ role: 'model', parts })
const text = (value: string) => ({ text: value })
const call = (callId: string, name = 'f', more: Record<string, unknown> = {}) => ({
  type: 'function_call',
  call_id: callId,
  name,
  arguments: '{"a":1}',
  ...more,
})
const output = (callId: string, value: unknown) => ({
  type: 'function_call_output',
  call_id: callId,
  output: value,
})
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

t.test('contents', async t => {
  const cases: readonly { name: string; body: Record<string, unknown>; contents: unknown; at?: Endpoint }[] =
    [
      { name: 'a string', body: { input: 'Hi' }, contents: [user(text('Hi'))] },
      {
        name: 'neighbours of one role are one turn',
        body: {
          input: [
            { role: 'user', content: 'a' },
            { role: 'user', content: [{ type: 'input_text', text: 'b' }] },
            { role: 'assistant', content: 'c' },
            {
              type: 'message',
              role: 'assistant',
              id: 'm',
              status: 'completed',
              content: [
                { type: 'output_text', text: 'd', annotations: [] },
                { type: 'refusal', refusal: 'e' },
              ],
            },
            { role: 'user', content: 'f' },
          ],
        },
        contents: [user(text('a'), text('b')), model(text('c'), text('d'), text('e')), user(text('f'))],
      },
      {
        name: 'texts without content are left out',
        body: {
          input: [
            { role: 'user', content: 'a' },
            { role: 'assistant', content: '' },
            { role: 'assistant', content: null },
            { role: 'user', content: [{ type: 'input_text', text: '' }] },
          ],
        },
        contents: [user(text('a'))],
      },
      {
        name: 'parallel calls and their results',
        body: {
          input: [
            { role: 'user', content: 'q' },
            call('c1', 'f', { signature: 'sig' }),
            call('c2', 'g'),
            output('c1', '{"t":20}'),
            output('c2', 'warm'),
            { role: 'user', content: 'ok' },
          ],
        },
        contents: [
          user(text('q')),
          model(
            { functionCall: { id: 'c1', name: 'f', args: { a: 1 } }, thoughtSignature: 'sig' },
            { functionCall: { id: 'c2', name: 'g', args: { a: 1 } } },
          ),
          user(
            { functionResponse: { id: 'c1', name: 'f', response: { t: 20 } } },
            { functionResponse: { id: 'c2', name: 'g', response: { output: 'warm' } } },
          ),
          user(text('ok')),
        ],
      },
      {
        name: 'results that are no object are wrapped',
        body: {
          input: [
            call('1'),
            output('1', '[1]'),
            call('2'),
            output('2', '5'),
            call('3'),
            output('3', ''),
            call('4'),
            output('4', 'null'),
          ],
        },
        contents: ['[1]', '5', '', 'null'].flatMap((value, index) => {
          const id = String(index + 1)
          return [
            model({ functionCall: { id, name: 'f', args: { a: 1 } } }),
            user({ functionResponse: { id, name: 'f', response: { output: value } } }),
          ]
        }),
      },
      {
        name: 'media that a function gave back follow its result',
        body: {
          input: [
            call('1'),
            output('1', [
              { type: 'input_text', text: 'two' },
              { type: 'input_text', text: 'lines' },
              { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,QUJD' },
            ]),
            { role: 'user', content: 'see?' },
          ],
        },
        contents: [
          model({ functionCall: { id: '1', name: 'f', args: { a: 1 } } }),
          user({ functionResponse: { id: '1', name: 'f', response: { output: 'two\nlines' } } }),
          user({ inlineData: { mimeType: 'image/png', data: 'QUJD' } }, text('see?')),
        ],
      },
      {
        name: 'arguments that are no object are kept',
        body: {
          input: [
            call('1', 'f', { arguments: '' }),
            output('1', 'x'),
            call('2', 'f', { arguments: '{"cut' }),
            output('2', 'x'),
          ],
        },
        contents: [
          model({ functionCall: { id: '1', name: 'f', args: {} } }),
          user({ functionResponse: { id: '1', name: 'f', response: { output: 'x' } } }),
          model({ functionCall: { id: '2', name: 'f', args: { arguments: '{"cut' } } }),
          user({ functionResponse: { id: '2', name: 'f', response: { output: 'x' } } }),
        ],
      },
      {
        name: 'calls of custom tools in the history',
        body: {
          input: [
            { type: 'custom_tool_call', call_id: '1', name: 'sql', input: 'select 1' },
            { type: 'custom_tool_call_output', call_id: '1', output: 'one' },
          ],
        },
        contents: [
          model({ functionCall: { id: '1', name: 'sql', args: { input: 'select 1' } } }),
          user({ functionResponse: { id: '1', name: 'sql', response: { output: 'one' } } }),
        ],
      },
      {
        name: 'a signature before text goes back on the text, thoughts do not',
        body: {
          input: [
            {
              type: 'reasoning',
              id: 'r',
              summary: [{ type: 'summary_text', text: 'hm' }],
              format: 'google-gemini-v1',
              signature: 'sig',
            },
            {
              role: 'assistant',
              content: [
                { type: 'output_text', text: 'a' },
                { type: 'output_text', text: 'b' },
              ],
            },
            { role: 'user', content: 'c' },
          ],
        },
        contents: [model({ text: 'a', thoughtSignature: 'sig' }, text('b')), user(text('c'))],
      },
      {
        name: 'a signature after text goes back on an empty text',
        body: {
          input: [
            { role: 'assistant', content: 'a' },
            { type: 'reasoning', id: 'r', summary: [], format: 'google-gemini-v1', signature: 'sig' },
            { role: 'user', content: 'c' },
          ],
        },
        contents: [model(text('a'), { text: '', thoughtSignature: 'sig' }), user(text('c'))],
      },
      {
        name: 'a signature before a call without its own goes back on the call',
        body: {
          input: [
            { type: 'reasoning', id: 'r', summary: [], format: 'google-gemini-v1', signature: 'sig' },
            call('1'),
          ],
        },
        contents: [model({ functionCall: { id: '1', name: 'f', args: { a: 1 } }, thoughtSignature: 'sig' })],
      },
      {
        name: 'signatures of other makers stay here',
        body: {
          input: [
            { type: 'reasoning', id: 'r', summary: [], format: 'anthropic-claude-v1', signature: 'foreign' },
            { type: 'reasoning', id: 's', summary: [], signature: 'unmarked', encrypted_content: 'x' },
            { role: 'assistant', content: 'a' },
          ],
        },
        contents: [model(text('a'))],
      },
      {
        name: 'calls of another model, for a model that demands signatures',
        at: endpoint('gemini-3-pro-preview'),
        body: {
          input: [
            call('1'),
            call('2'),
            output('1', 'x'),
            output('2', 'x'),
            call('3', 'f', { signature: 'own' }),
            output('3', 'x'),
          ],
        },
        contents: [
          model(
            {
              functionCall: { id: '1', name: 'f', args: { a: 1 } },
              thoughtSignature: 'skip_thought_signature_validator',
            },
            { functionCall: { id: '2', name: 'f', args: { a: 1 } } },
          ),
          user(
            { functionResponse: { id: '1', name: 'f', response: { output: 'x' } } },
            { functionResponse: { id: '2', name: 'f', response: { output: 'x' } } },
          ),
          model({ functionCall: { id: '3', name: 'f', args: { a: 1 } }, thoughtSignature: 'own' }),
          user({ functionResponse: { id: '3', name: 'f', response: { output: 'x' } } }),
        ],
      },
      {
        name: 'code that the provider ran, and images it made',
        body: {
          input: [
            {
              type: 'code_interpreter_call',
              id: 'c0de',
              status: 'completed',
              code: 'print(1)',
              outputs: [
                { type: 'logs', logs: '1\n' },
                { type: 'image', url: 'data:,' },
              ],
              signature: 'sig',
            },
            { type: 'code_interpreter_call', id: 'st_1', status: 'failed', code: 'boom()', outputs: [] },
            { type: 'code_interpreter_call', id: 'st_2', status: 'incomplete', code: 'cut()', outputs: [] },
            {
              type: 'image_generation_call',
              id: 'st_3',
              status: 'completed',
              result: 'QUJD',
              output_format: 'jpeg',
            },
            {
              type: 'image_generation_call',
              id: 'st_4',
              status: 'completed',
              result: 'data:image/png;base64,QUJD',
              signature: 's4',
            },
            { type: 'image_generation_call', id: 'st_5' },
            {
              type: 'web_search_call',
              id: 'st_6',
              status: 'completed',
              action: { type: 'search', query: 'x' },
            },
            { type: 'gateway:datetime', datetime: '2026-01-01T00:00:00Z', timezone: 'UTC' },
          ],
        },
        contents: [
          model(
            { executableCode: { id: 'c0de', language: 'PYTHON', code: 'print(1)' }, thoughtSignature: 'sig' },
            { codeExecutionResult: { id: 'c0de', outcome: 'OUTCOME_OK', output: '1\n' } },
            { executableCode: { language: 'PYTHON', code: 'boom()' } },
            { codeExecutionResult: { outcome: 'OUTCOME_FAILED' } },
            { executableCode: { language: 'PYTHON', code: 'cut()' } },
            { inlineData: { mimeType: 'image/jpeg', data: 'QUJD' } },
            { inlineData: { mimeType: 'image/png', data: 'QUJD' }, thoughtSignature: 's4' },
          ),
        ],
      },
      {
        name: 'media of a user',
        body: {
          input: [
            {
              role: 'user',
              content: [
                { type: 'input_image', detail: 'auto', image_url: 'DATA:image/webp;base64,QUJD' },
                { type: 'input_image', detail: 'auto', image_url: 'https://a.example/p.JPG?w=1#x.png' },
                { type: 'input_image', detail: 'auto', image_url: 'https://a.example/p' },
                {
                  type: 'input_image',
                  detail: 'auto',
                  file_id: 'https://generativelanguage.example/v1beta/files/7',
                },
                { type: 'input_file', filename: 'a.csv', file_data: 'QSxC' },
                { type: 'input_file', filename: 'a.bin', file_data: 'data:application/pdf;base64,QUJD' },
                { type: 'input_file', file_data: 'data:text/plain;charset=utf-8,%C3%A9' },
                { type: 'input_file', filename: 'b.pdf', file_url: 'gs://bucket/b' },
                { type: 'input_audio', input_audio: { data: 'UklG', format: 'wav' } },
                { type: 'input_video', video_url: 'https://youtu.be/abc' },
                { type: 'input_video', video_url: 'data:video/webm;base64,QUJD' },
              ],
            },
          ],
        },
        contents: [
          user(
            { inlineData: { mimeType: 'image/webp', data: 'QUJD' } },
            { fileData: { mimeType: 'image/jpeg', fileUri: 'https://a.example/p.JPG?w=1#x.png' } },
            { fileData: { fileUri: 'https://a.example/p' } },
            { fileData: { fileUri: 'https://generativelanguage.example/v1beta/files/7' } },
            { inlineData: { mimeType: 'text/csv', data: 'QSxC' } },
            { inlineData: { mimeType: 'application/pdf', data: 'QUJD' } },
            { inlineData: { mimeType: 'text/plain', data: 'w6k=' } },
            { fileData: { mimeType: 'application/pdf', fileUri: 'gs://bucket/b' } },
            { inlineData: { mimeType: 'audio/wav', data: 'UklG' } },
            { fileData: { mimeType: 'video/mp4', fileUri: 'https://youtu.be/abc' } },
            { inlineData: { mimeType: 'video/webm', data: 'QUJD' } },
          ),
        ],
      },
    ]
  for (const { name, body, contents, at } of cases) t.strictSame(bodyOf(body, at)['contents'], contents, name)
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
    [{ stop: 'x', seed: 'no', temperature: null, top_k: null }, { stopSequences: ['x'] }],
    [{ stop: [], seed: 1.5 }, undefined],
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
  ]
  for (const [body, config] of cases)
    t.strictSame(bodyOf(body)['generationConfig'], config, JSON.stringify(body))
})

t.test('tools and tool choice', async t => {
  const parameters = {
    type: 'object',
    properties: { a: { $ref: '#/$defs/a' } },
    $defs: { a: { type: 'string' } },
  }
  const declared = (...names: string[]) => [{ functionDeclarations: names.map(name => ({ name })) }]
  const cases: readonly { body: Record<string, unknown>; tools: unknown; config?: unknown; at?: Endpoint }[] =
    [
      { body: { tools: [] }, tools: undefined },
      {
        body: {
          tools: [
            fn('f', { description: 'd', strict: true, parameters, async: true, defer_loading: false }),
            fn('g', { parameters: null }),
            fn('h', { parameters: {} }),
          ],
        },
        tools: [
          {
            functionDeclarations: [
              { name: 'f', description: 'd', parametersJsonSchema: parameters },
              { name: 'g' },
              { name: 'h' },
            ],
          },
        ],
      },
      {
        body: {
          tools: [
            { type: 'web_search' },
            {
              type: 'web_search_preview',
              search_context_size: 'low',
              filters: null,
              user_location: { type: 'approximate', country: 'DE' },
            },
            { type: 'web_search_2025_08_26', filters: { allowed_domains: [] } },
            { type: 'web_search_preview_2025_03_11' },
            { type: 'code_interpreter', container: { type: 'auto' } },
          ],
        },
        tools: [{ googleSearch: {} }, { codeExecution: {} }],
      },
      {
        body: { tools: [fn('f')], tool_choice: 'auto' },
        tools: declared('f'),
        config: { functionCallingConfig: { mode: 'AUTO' } },
      },
      {
        body: { tools: [fn('f')], tool_choice: 'none' },
        tools: declared('f'),
        config: { functionCallingConfig: { mode: 'NONE' } },
      },
      {
        body: { tools: [fn('f')], tool_choice: 'required' },
        tools: declared('f'),
        config: { functionCallingConfig: { mode: 'ANY' } },
      },
      {
        body: { tools: [fn('f'), fn('g')], tool_choice: { type: 'function', name: 'g' } },
        tools: declared('f', 'g'),
        config: { functionCallingConfig: { mode: 'ANY', allowedFunctionNames: ['g'] } },
      },
      {
        body: {
          tools: [fn('f'), fn('g'), { type: 'web_search' }, { type: 'shell' }],
          tool_choice: {
            type: 'allowed_tools',
            mode: 'auto',
            tools: [{ type: 'function', name: 'g' }, { type: 'web_search' }],
          },
        },
        tools: [{ googleSearch: {} }, ...declared('g')],
        config: { functionCallingConfig: { mode: 'AUTO' } },
      },
      {
        body: {
          tools: [fn('f'), fn('g')],
          tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ type: 'function', name: 'g' }] },
        },
        tools: declared('g'),
        config: { functionCallingConfig: { mode: 'ANY' } },
      },
      { body: { tools: [{ type: 'web_search' }], tool_choice: 'auto' }, tools: [{ googleSearch: {} }] },
      { body: { tools: [{ type: 'web_search' }], tool_choice: 'none' }, tools: undefined },
      { body: { tool_choice: 'none' }, tools: undefined },
      { body: { tools: [fn('f'), { type: 'web_search' }] }, tools: [{ googleSearch: {} }, ...declared('f')] },
      {
        at: endpoint('gemini-3-flash-preview'),
        body: { tools: [fn('f'), { type: 'web_search' }] },
        tools: [{ googleSearch: {} }, ...declared('f')],
        config: { includeServerSideToolInvocations: true },
      },
    ]
  for (const { body, tools, config, at } of cases) {
    const encoded = bodyOf(body, at)
    t.strictSame(encoded['tools'], tools, JSON.stringify(body))
    t.strictSame(encoded['toolConfig'], config, JSON.stringify(body))
  }
})

t.test('what Gemini cannot express is refused by its path', async t => {
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
    [{ tool_choice: { type: 'function', name: 'f' } }, 'tool_choice.name: '],
    [{ tool_choice: 'required', tools: [{ type: 'web_search' }] }, 'tool_choice: '],
    [
      { tool_choice: { type: 'web_search_preview' }, tools: [{ type: 'web_search_preview' }] },
      'tool_choice.type: ',
    ],
    [{ tool_choice: { type: 'custom', name: 'c' } }, 'tool_choice.type: '],
    [{ input: '' }, 'input: '],
    [{ input: [{ role: 'user', content: 'a' }, output('nowhere', 'x')] }, 'input[1].call_id: '],
    [{ input: [{ type: 'local_shell_call_output', id: 'x', output: 'y' }] }, 'input[0].type: '],
    [{ input: [{ type: 'compaction', encrypted_content: 'sealed' }] }, 'input[0].type: '],
    [{ input: [{ type: 'additional_tools', role: 'developer', tools: [] }] }, 'input[0].type: '],
    [
      {
        input: [
          {
            role: 'system',
            content: [{ type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,QQ==' }],
          },
        ],
      },
      'input[0].content: ',
    ],
    [
      { input: [{ role: 'user', content: [{ type: 'input_image', detail: 'auto', file_id: 'file-7' }] }] },
      'input[0].content[0].file_id: ',
    ],
    [
      {
        input: [
          {
            role: 'user',
            content: [{ type: 'input_image', detail: 'auto', image_url: 'file:///etc/passwd' }],
          },
        ],
      },
      'input[0].content[0].image_url: ',
    ],
    [
      {
        input: [
          {
            role: 'user',
            content: [{ type: 'input_image', detail: 'auto', image_url: 'data:;base64,QQ==' }],
          },
        ],
      },
      'input[0].content[0].image_url: ',
    ],
    [
      {
        input: [
          {
            role: 'user',
            content: [{ type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64' }],
          },
        ],
      },
      'input[0].content[0].image_url: ',
    ],
    [
      {
        input: [
          {
            role: 'user',
            content: [{ type: 'input_file', filename: 'a.txt', file_data: 'data:text/plain,%zz' }],
          },
        ],
      },
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
  const full = googleGemini.encode({ request, stream: false, endUser: 'hash-of-user' }, endpoint())
  t.strictSame(full, plain)
  t.strictSame(full.headers, {})
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
