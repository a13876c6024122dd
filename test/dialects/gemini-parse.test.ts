/** Bodies of generateContent as requests: schemas, spellings, settings, and errors by the names of the body. */
import t from 'tap'
import { gemini } from '../support/dialects.ts'

type Loose = Record<string, unknown>

const HELLO = [{ role: 'user', parts: [{ text: 'hi' }] }]
const parsed = (body: Loose): Loose =>
  gemini.parse({ model: 'acme/one', contents: HELLO, ...body }) as unknown as Loose

/** The message of the refusal. */
function refused(body: Loose): string {
  try {
    parsed(body)
  } catch (thrown) {
    return (thrown as Error).message
  }
  return ''
}

t.test('schemas of Google are JSON Schema for others', async t => {
  const parameters = {
    type: 'OBJECT',
    properties: {
      any_of: { type: 'STRING', nullable: true, enum: ['a', 'b'], format: 'enum' },
      list: { type: 'ARRAY', items: { type: 'NUMBER', format: 'double' }, min_items: '1', maxItems: '3' },
      either: { anyOf: [{ type: 'STRING' }, { type: 'INTEGER' }], nullable: true },
    },
    required: ['list'],
    propertyOrdering: ['list', 'any_of'],
  }
  const { tools } = parsed({ tools: [{ functionDeclarations: [{ name: 'f', parameters }] }] })
  t.match(tools, [{ type: 'function', name: 'f' }])
  t.same((tools as Loose[])[0]?.['parameters'], {
    type: 'object',
    properties: {
      any_of: { type: ['string', 'null'], enum: ['a', 'b', null] },
      list: { type: 'array', items: { type: 'number', format: 'double' }, minItems: 1, maxItems: 3 },
      either: { anyOf: [{ type: 'string' }, { type: 'integer' }, { type: 'null' }] },
    },
    required: ['list'],
  })
})

t.test('settings of the generation have their places', async t => {
  t.match(
    parsed({
      generationConfig: {
        temperature: 1,
        topP: 0.5,
        topK: 40,
        seed: 7,
        maxOutputTokens: 9,
        stopSequences: ['x'],
        presencePenalty: 0.1,
        frequencyPenalty: 0.2,
        responseLogprobs: true,
        responseModalities: ['TEXT', 'IMAGE'],
        imageConfig: { aspectRatio: '16:9' },
        responseMimeType: 'application/json',
      },
    }),
    {
      temperature: 1,
      top_p: 0.5,
      top_k: 40,
      seed: 7,
      max_output_tokens: 9,
      stop: ['x'],
      presence_penalty: 0.1,
      frequency_penalty: 0.2,
      top_logprobs: 1,
      modalities: ['text', 'image'],
      image_config: { aspect_ratio: '16:9' },
      text: { format: { type: 'json_object' } },
    },
  )
  for (const [thinkingConfig, reasoning] of [
    [{ thinkingBudget: 0 }, { enabled: false }],
    [{ thinkingBudget: -1 }, { enabled: true }],
    [{ thinkingBudget: 2000 }, { enabled: true, max_tokens: 2000 }],
    [
      { thinkingLevel: 'LOW', includeThoughts: true },
      { enabled: true, effort: 'low', summary: 'auto' },
    ],
    [{ includeThoughts: true }, { summary: 'auto' }],
  ])
    t.same(parsed({ generationConfig: { thinkingConfig } })['reasoning'], {
      ...reasoning,
      thinking: thinkingConfig,
    })
})

t.test('the ways to choose a function', async t => {
  const tools = [{ functionDeclarations: [{ name: 'f' }, { name: 'g' }] }]
  const chosen = (functionCallingConfig: Loose) =>
    parsed({ tools, toolConfig: { functionCallingConfig } })['tool_choice']
  t.equal(chosen({ mode: 'AUTO' }), 'auto')
  t.equal(chosen({ mode: 'VALIDATED' }), 'auto')
  t.equal(chosen({ mode: 'NONE' }), 'none')
  t.equal(chosen({ mode: 'ANY' }), 'required')
  t.same(chosen({ mode: 'ANY', allowedFunctionNames: ['g'] }), { type: 'function', name: 'g' })
  t.match(chosen({ mode: 'ANY', allowedFunctionNames: ['f', 'g'] }), {
    type: 'allowed_tools',
    mode: 'required',
    tools: [{ name: 'f' }, { name: 'g' }],
  })
})

t.test('errors name fields of the body', async t => {
  const call = { role: 'model', parts: [{ functionCall: { name: 'f' } }] }
  const result = (name: string) => ({ role: 'user', parts: [{ functionResponse: { name, response: {} } }] })
  for (const [body, path] of [
    [{ contents: [] }, 'contents'],
    [{ contents: [{ role: 'system', parts: [{ text: 'x' }] }] }, 'contents[0].role'],
    [{ contents: [{ parts: [{ inlineData: { data: '' } }] }] }, 'contents[0].parts[0].inlineData.mimeType'],
    [{ contents: [...HELLO, call, result('g')] }, 'contents[2].parts[0].functionResponse.name'],
    [
      { systemInstruction: { parts: [{ inlineData: { mimeType: 'a/b', data: '' } }] } },
      'systemInstruction.parts[0]',
    ],
    [{ generationConfig: { temperature: 3 } }, 'generationConfig.temperature'],
    [{ generationConfig: { candidateCount: 2 } }, 'generationConfig.candidateCount'],
    [{ generationConfig: { responseModalities: ['AUDIO'] } }, 'generationConfig.responseModalities[0]'],
    [{ tools: [{ functionDeclarations: [{ name: 'a b' }] }] }, 'tools[0].functionDeclarations[0].name'],
    [{ tools: [{ type: 'gateway:nothing' }] }, 'tools[0].type'],
    [{ toolConfig: { functionCallingConfig: { mode: 'MAYBE' } } }, 'toolConfig.functionCallingConfig.mode'],
    [{ messages: [] }, 'messages'],
    [{ max_tokens: 7 }, 'max_tokens'],
  ] as const) {
    const message = refused(body as Loose)
    t.equal(message.slice(0, message.indexOf(': ')), path, message)
  }
  t.equal(refused({ contents: [...HELLO, call, result('f')] }), '')
})

t.test('a body in either spelling is the same request, and is left as it was', async t => {
  const usual = {
    contents: [{ role: 'user', parts: [{ inlineData: { mimeType: 'image/png', data: 'QQ==' } }] }],
    systemInstruction: { parts: [{ text: 'x' }] },
    generationConfig: { maxOutputTokens: 9 },
  }
  const other = {
    contents: [{ role: 'user', parts: [{ inline_data: { mime_type: 'image/png', data: 'QQ==' } }] }],
    system_instruction: { parts: [{ text: 'x' }] },
    generation_config: { max_output_tokens: 9 },
  }
  const before = structuredClone(other)
  t.same(parsed(other), parsed(usual))
  t.same(other, before)
  const args = { snake_case: { inner_name: 1 } }
  const { input } = parsed({ contents: [{ role: 'model', parts: [{ function_call: { name: 'f', args } }] }] })
  t.match(input, [{ arguments: JSON.stringify(args) }], 'arguments are data')
})
