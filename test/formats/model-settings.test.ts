/**
 * Efforts and formats of answers at models that lack some of them: through each door, a model gets only what it takes,
 * and the report says what was changed. The cases are generated.
 */
import t from 'tap'
import type { Json } from '../../src/base/json.ts'
import { outgoingRequest } from '../../src/formats/outgoing.ts'
import { changedSettings } from '../../src/formats/sent-settings.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { EFFORTS } from '../../src/protocol/efforts.ts'
import type { Endpoint, FormatName } from '../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { PROVIDERS } from '../../src/providers/table.ts'
import { chatCompletions, gemini, messages, responsesDialect } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'

type Door = 'responses' | 'chat-completions' | 'messages' | 'gemini'

interface Asked {
  /** `off`: as clients of the door turn thinking off. */
  readonly effort?: string
  readonly json?: 'json_object' | 'json_schema'
  readonly tools?: true
  readonly hosted?: true
  /** Ends with a turn of the model. */
  readonly begun?: true
}

const SCHEMA = { type: 'object', properties: { a: { type: 'string' } }, additionalProperties: false }

/** A request as a client of each door writes it; null: clients of the door cannot say it. */
const DOORS: Readonly<Record<Door, (asked: Asked) => ResponsesRequest | null>> = {
  responses: ({ effort, json, tools, hosted, begun }) =>
    responsesDialect.parse({
      model: 'acme/m',
      input: [{ role: 'user', content: 'Hi' }, ...(begun ? [{ role: 'assistant', content: 'It is' }] : [])],
      ...(effort === undefined ? {} : { reasoning: effort === 'off' ? { enabled: false } : { effort } }),
      ...(json === undefined
        ? {}
        : {
            text: {
              format: json === 'json_object' ? { type: json } : { type: json, name: 's', schema: SCHEMA },
            },
          }),
      tools: [
        ...(tools ? [{ type: 'function', name: 'f', parameters: SCHEMA }] : []),
        ...(hosted ? [{ type: 'web_search' }] : []),
      ],
    }),
  'chat-completions': ({ effort, json, tools, hosted, begun }) =>
    hosted
      ? null
      : chatCompletions.parse({
          model: 'acme/m',
          messages: [
            { role: 'user', content: 'Hi' },
            ...(begun ? [{ role: 'assistant', content: 'It is' }] : []),
          ],
          ...(effort === undefined ? {} : { reasoning_effort: effort === 'off' ? 'none' : effort }),
          ...(json === undefined
            ? {}
            : {
                response_format:
                  json === 'json_object'
                    ? { type: json }
                    : { type: json, json_schema: { name: 's', schema: SCHEMA } },
              }),
          ...(tools ? { tools: [{ type: 'function', function: { name: 'f', parameters: SCHEMA } }] } : {}),
        }),
  messages: ({ effort, json, tools, hosted, begun }) =>
    json === 'json_object' || effort === 'none' || effort === 'minimal'
      ? null
      : messages.parse({
          model: 'acme/m',
          max_tokens: 5_000,
          messages: [
            { role: 'user', content: 'Hi' },
            ...(begun ? [{ role: 'assistant', content: 'It is' }] : []),
          ],
          ...(effort === 'off' ? { thinking: { type: 'disabled' } } : {}),
          ...(effort === undefined || effort === 'off' ? {} : { thinking: { type: 'adaptive' } }),
          output_config: {
            ...(effort === undefined || effort === 'off' ? {} : { effort }),
            ...(json === undefined ? {} : { format: { type: json, schema: SCHEMA } }),
          },
          tools: [
            ...(tools ? [{ name: 'f', input_schema: SCHEMA }] : []),
            ...(hosted ? [{ type: 'web_search_20250305', name: 'web_search' }] : []),
          ],
        }),
  gemini: ({ effort, json, tools, hosted, begun }) => {
    const level = effort === undefined || effort === 'off' ? undefined : LEVELS[effort]
    if (effort !== undefined && effort !== 'off' && level === undefined) return null
    return gemini.parse({
      model: 'acme/m',
      contents: [
        { role: 'user', parts: [{ text: 'Hi' }] },
        ...(begun ? [{ role: 'model', parts: [{ text: 'It is' }] }] : []),
      ],
      tools: [
        ...(tools ? [{ functionDeclarations: [{ name: 'f', parametersJsonSchema: SCHEMA }] }] : []),
        ...(hosted ? [{ googleSearch: {} }] : []),
      ],
      generationConfig: {
        ...(effort === 'off' ? { thinkingConfig: { thinkingBudget: 0 } } : {}),
        ...(level === undefined ? {} : { thinkingConfig: { thinkingLevel: level } }),
        ...(json === undefined ? {} : { responseMimeType: 'application/json' }),
        ...(json === 'json_schema' ? { responseJsonSchema: SCHEMA } : {}),
      },
    })
  },
}
const LEVELS: Readonly<Record<string, string | undefined>> = {
  minimal: 'MINIMAL',
  low: 'LOW',
  medium: 'MEDIUM',
  high: 'HIGH',
}

function endpointAt(slug: string, model: string): Endpoint & { readonly format: FormatName } {
  const row = PROVIDERS.find(each => each.slug === slug)
  if (row === undefined) throw new Error(`no row ${slug}`)
  const format = row.format as FormatName
  return { ...endpointOf(format, { row, upstreamModel: model }), format }
}

/** What goes out, and the fields that the report names. */
function sent(door: Door, request: ResponsesRequest, endpoint: Endpoint & { readonly format: FormatName }) {
  const format = FORMATS[endpoint.format]
  const outgoing = outgoingRequest(request, format, door)
  const isOwnApi = format.dialect === door
  const { body, changes = [] } = format.encode(
    { request: outgoing, stream: false, endUser: null, isOwnApi },
    endpoint,
  )
  const told = [...changedSettings(endpoint.format, outgoing, body), ...changes].map(({ field }) => field)
  return { body, told, isOwnApi }
}

const at = (value: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((found, name) => (found as Json | undefined)?.[name], value)

/** The efforts that models take, as their providers document them: written out, so that the table cannot agree with itself. */
const TAKEN: readonly (readonly [slug: string, model: string, efforts: string])[] = [
  ['openai', 'gpt-5', 'minimal low medium high'],
  ['openai', 'gpt-5-mini-2025-08-07', 'minimal low medium high'],
  ['openai', 'gpt-5-pro', 'high'],
  ['openai', 'gpt-5-codex', 'low medium high'],
  ['openai', 'gpt-5-chat-latest', ''],
  ['openai', 'gpt-5.1', 'none low medium high'],
  ['openai', 'gpt-5.1-codex-max', 'low medium high xhigh'],
  ['openai', 'gpt-5.1-codex-mini', 'low medium high'],
  ['openai', 'gpt-5.2', 'none low medium high xhigh'],
  ['openai', 'gpt-5.2-chat-latest', 'medium'],
  ['openai', 'gpt-5.2-pro', 'medium high xhigh'],
  ['openai', 'gpt-5.3-codex', 'low medium high xhigh'],
  ['openai', 'gpt-5.4-nano', 'none low medium high xhigh'],
  ['openai', 'gpt-5.6-sol', 'none low medium high xhigh max'],
  ['openai', 'gpt-6-astra', 'low medium high xhigh max'],
  ['openai', 'gpt-4.1', ''],
  ['openai', 'gpt-4o-mini', ''],
  ['openai', 'o3', 'low medium high'],
  ['openai', 'o4-mini', 'low medium high'],
  ['openai', 'o3-deep-research', 'medium'],
  ['openai', 'o1-mini', ''],
  ['azure', 'gpt-5.1', 'none low medium high'],
  ['xai', 'grok-3-mini', 'low high'],
  ['xai', 'grok-4', ''],
  ['xai', 'grok-4-fast-reasoning', ''],
  ['xai', 'grok-4.3', 'none low medium high'],
  ['xai', 'grok-4.5', 'low medium high'],
  ['xai', 'grok-4.20-0309-reasoning', ''],
  ['xai', 'grok-4.20-multi-agent', 'low medium high xhigh'],
  ['deepseek', 'deepseek-v4-pro', 'off high max'],
  ['deepseek', 'deepseek-reasoner', ''],
  ['groq', 'openai/gpt-oss-120b', 'low medium high'],
  ['groq', 'qwen/qwen3-32b', 'none'],
  ['groq', 'llama-3.3-70b-versatile', ''],
  ['mistral', 'mistral-small-latest', 'none high'],
  ['mistral', 'mistral-medium-2604', 'none high'],
  ['mistral', 'mistral-large-latest', ''],
  ['mistral', 'codestral-latest', ''],
  ['mistral', 'mistral-small-2503', ''],
  ['moonshotai', 'kimi-k3', 'low high max'],
  ['anthropic', 'claude-opus-4-5-20251101', 'low medium high'],
  ['anthropic', 'claude-sonnet-4-5-20250929', ''],
  ['anthropic', 'claude-3-7-sonnet-latest', ''],
  ['anthropic', 'claude-opus-4-6', 'low medium high max'],
  ['anthropic', 'claude-opus-4-7', 'low medium high xhigh max'],
  ['anthropic', 'claude-sonnet-5', 'low medium high xhigh max'],
  ['google-ai-studio', 'gemini-2.0-flash', ''],
  ['google-ai-studio', 'gemini-2.5-pro', 'budget'],
  ['google-ai-studio', 'gemini-2.5-flash', 'off budget'],
  ['google-ai-studio', 'gemini-3-pro-preview', 'LOW HIGH'],
  ['google-ai-studio', 'gemini-3-flash-preview', 'MINIMAL LOW MEDIUM HIGH'],
  ['google-ai-studio', 'gemini-3.7-flash', 'LOW MEDIUM HIGH'],
]

/** The effort in a body, or its form in other formats; null: there is none. */
const SENT: Readonly<Record<FormatName, (body: Json) => unknown>> = {
  'openai-responses': body => at(body, 'reasoning', 'effort') ?? null,
  'openai-chat': body =>
    at(body, 'thinking', 'type') === 'disabled' ? 'off' : (body['reasoning_effort'] ?? null),
  'anthropic-messages': body => at(body, 'output_config', 'effort') ?? null,
  'google-gemini': body => {
    const { thinkingBudget: budget, thinkingLevel: level } =
      (at(body, 'generationConfig', 'thinkingConfig') as Json | undefined) ?? {}
    return level ?? (budget === undefined ? null : budget === 0 ? 'off' : 'budget')
  },
  'bedrock-converse': () => null,
}
/** Formats in which a model thinks only if it is told to. */
const SILENT: ReadonlySet<FormatName> = new Set(['anthropic-messages', 'google-gemini'])

t.test('each effort through each door at each model', async t => {
  let size = 0
  for (const [slug, model, list] of TAKEN) {
    const endpoint = endpointAt(slug, model)
    const taken = list.split(' ')
    for (const door of Object.keys(DOORS) as Door[]) {
      for (const effort of [...EFFORTS, 'off']) {
        const request = DOORS[door]({ effort })
        if (request === null) continue
        const { body, told, isOwnApi } = sent(door, request, endpoint)
        // Clients of Google's API write its own setting, which is passed on.
        if (isOwnApi && endpoint.format === 'google-gemini') continue
        const found = SENT[endpoint.format](body)
        const title = `${effort} at ${model} of ${slug} through ${door}`
        if (found !== null) t.ok(taken.includes(String(found)), `${title}: ${found} is taken`)
        const stops = effort === 'off' || effort === 'none'
        if (!stops && taken.includes(effort) && endpoint.format !== 'anthropic-messages')
          t.equal(found, effort, `${title}: as it came`)
        if (!stops) t.not(found, 'none', `${title}: a model that may think is not told to stop`)
        const isHonoured = stops
          ? found === 'none' || found === 'off' || (found === null && SILENT.has(endpoint.format))
          : found === effort || at(body, 'thinking') !== undefined || endpoint.format === 'google-gemini'
        const isTold = told.some(field => field.startsWith('reasoning.'))
        if (stops || !SILENT.has(endpoint.format)) t.equal(isTold, !isHonoured, `${title}: ${found} is told`)
        size++
      }
    }
  }
  t.comment(`${size} of ${size} cases`)
  t.ok(size > 900)
})

/** Formats of answers that are enforced, without and with tools. */
const JSON_TAKEN: readonly (readonly [slug: string, model: string, alone: string, besideTools: string])[] = [
  ['openai', 'gpt-5', 'json_object json_schema', 'json_object json_schema'],
  ['deepseek', 'deepseek-v4-pro', 'json_object', 'json_object'],
  ['groq', 'openai/gpt-oss-120b', 'json_object json_schema', ''],
  ['mistral', 'mistral-large-latest', 'json_object json_schema', 'json_object json_schema'],
  ['vllm', 'm', 'json_object json_schema', 'json_object json_schema'],
  ['anthropic', 'claude-opus-4-7', 'json_schema', 'json_schema'],
  ['google-ai-studio', 'gemini-2.5-flash', 'json_object json_schema', ''],
  ['google-ai-studio', 'gemini-3-flash-preview', 'json_object json_schema', 'json_object json_schema'],
]
const JSON_SENT: Readonly<Record<FormatName, (body: Json) => unknown>> = {
  'openai-responses': body => at(body, 'text', 'format', 'type') ?? 'text',
  'openai-chat': body => at(body, 'response_format', 'type') ?? 'text',
  'anthropic-messages': body => at(body, 'output_config', 'format', 'type') ?? 'text',
  'google-gemini': body => {
    const { responseMimeType: mime, responseJsonSchema: schema } = (body['generationConfig'] ?? {}) as Json
    return mime !== 'application/json' ? 'text' : schema === undefined ? 'json_object' : 'json_schema'
  },
  'bedrock-converse': () => 'text',
}

t.test('each format of an answer through each door, with and without tools', async t => {
  let size = 0
  for (const [slug, model, alone, besideTools] of JSON_TAKEN) {
    const endpoint = endpointAt(slug, model)
    for (const door of Object.keys(DOORS) as Door[]) {
      for (const json of ['json_object', 'json_schema'] as const) {
        for (const tools of [undefined, true] as const) {
          const request = DOORS[door](tools === undefined ? { json } : { json, tools })
          if (request === null) continue
          const { body, told } = sent(door, request, endpoint)
          const taken = (tools ? besideTools : alone).split(' ')
          const found = JSON_SENT[endpoint.format](body)
          const title = `${json}${tools ? ' beside tools' : ''} at ${model} through ${door}`
          t.ok(found === 'text' || taken.includes(String(found)), `${title}: ${found} is taken`)
          if (taken.includes(json)) t.equal(found, json, `${title}: as it came`)
          else {
            const words = JSON.stringify(body)
            t.match(words, /JSON/, `${title}: words ask for it`)
            if (json === 'json_schema')
              t.ok(words.includes('additionalProperties'), `${title}: with the schema`)
            t.ok(told.includes('text.format'), `${title}: told`)
          }
          if (taken.includes(json) && slug !== 'deepseek' && slug !== 'groq' && slug !== 'openai')
            t.notOk(told.includes('text.format'), `${title}: nothing to tell`)
          size++
        }
      }
    }
  }
  t.comment(`${size} of ${size} cases`)
  t.ok(size > 90)
})

t.test("Google's tools beside functions, and a last turn of the model", async t => {
  const old = ['gemini-2.0-flash', 'gemini-2.5-pro', 'gemini-2.5-flash-lite']
  const recent = ['gemini-3-pro-preview', 'gemini-3-flash-preview', 'gemini-3.1-pro', 'gemini-3.5-flash']
  const latest = [
    'gemini-3.5-flash-lite',
    'gemini-3.6-flash',
    'gemini-3.10-pro',
    'gemini-4-pro',
    'gemini-flash-latest',
  ]
  for (const model of [...old, ...recent, ...latest]) {
    const endpoint = endpointAt('google-ai-studio', model)
    for (const door of Object.keys(DOORS) as Door[]) {
      const mixed = DOORS[door]({ tools: true, hosted: true })
      if (mixed !== null) {
        const { body, told } = sent(door, mixed, endpoint)
        const isAlone = old.includes(model)
        t.equal(JSON.stringify(body['tools']).includes('googleSearch'), !isAlone, `${model}: beside, ${door}`)
        t.equal(told.includes('tools[1]'), isAlone, `${model}: told, ${door}`)
      }
      const only = DOORS[door]({ hosted: true })
      if (only !== null)
        t.ok(
          JSON.stringify(sent(door, only, endpoint).body['tools']).includes('googleSearch'),
          `${model}: alone`,
        )
      const begun = DOORS[door]({ begun: true })
      if (begun === null) continue
      const { body, told, isOwnApi } = sent(door, begun, endpoint)
      const last = (body['contents'] as readonly Json[]).at(-1)
      const goesOn = latest.includes(model) && !isOwnApi
      t.equal(last?.['role'], goesOn ? 'user' : 'model', `${model}: last turn, ${door}`)
      t.equal(told.includes('input'), goesOn, `${model}: last turn told, ${door}`)
    }
  }
})

t.test('a row says what its models take, and the row of a model has the last word', async t => {
  const row = { ...endpointOf('openai-chat').provider, efforts: ['low', 'high'] as const }
  const request = DOORS.responses({ effort: 'medium', json: 'json_object', tools: true }) as ResponsesRequest
  const atProvider = {
    ...endpointOf('openai-chat', { row, jsonFormats: [] }),
    format: 'openai-chat' as const,
  }
  const first = sent('responses', request, atProvider)
  t.equal(first.body['reasoning_effort'], 'low', 'of two that are equally near, the weaker')
  t.equal(first.body['response_format'], undefined)
  t.same(first.told, ['reasoning.effort', 'text.format'])
  const atModel = { ...endpointOf('openai-chat', { row, efforts: [] }), format: 'openai-chat' as const }
  const second = sent('responses', request, atModel)
  t.equal(second.body['reasoning_effort'], undefined)
  t.same(second.told, ['reasoning.effort'])
})

/** Settings that models refuse, written out: always, and where they think. */
const TUNED: readonly (readonly [slug: string, model: string, always: string, thinking: string])[] = [
  ['openai', 'gpt-5', 'temperature top_p presence_penalty stop', ''],
  ['openai', 'gpt-5.1-codex', 'temperature top_p presence_penalty stop', ''],
  ['openai', 'o3', 'temperature top_p presence_penalty stop', ''],
  ['openai', 'gpt-5.2', '', 'temperature top_p presence_penalty stop'],
  ['openai', 'gpt-4.1', '', ''],
  ['openai', 'gpt-5-chat-latest', '', ''],
  ['azure', 'gpt-5-mini', 'temperature top_p presence_penalty stop', ''],
  ['xai', 'grok-4.5', 'presence_penalty stop', ''],
  ['xai', 'grok-3', '', ''],
  ['mistral', 'mistral-large-latest', 'seed top_k', ''],
  ['deepseek', 'deepseek-v4-pro', '', ''],
  ['vllm', 'm', '', ''],
]
const SETTINGS_ASKED = {
  temperature: 0.5,
  top_p: 0.5,
  presence_penalty: 0.5,
  stop: ['END'],
  seed: 7,
  top_k: 5,
}

t.test('settings that a model refuses are left out, and told', async t => {
  let size = 0
  for (const [slug, model, always, thinking] of TUNED) {
    const endpoint = endpointAt(slug, model)
    for (const effort of [undefined, 'none', 'high'] as const) {
      const request = chatCompletions.parse({
        model: 'acme/m',
        messages: [{ role: 'user', content: 'Hi' }],
        ...SETTINGS_ASKED,
        ...(effort === undefined ? {} : { reasoning_effort: effort }),
      })
      const { body, told } = sent('chat-completions', request, endpoint)
      const refused = `${always} ${effort === 'high' ? thinking : ''}`.split(' ')
      for (const name of Object.keys(SETTINGS_ASKED)) {
        const title = `${name} at ${model}, effort ${effort}`
        const isOfFormat =
          endpoint.format === 'openai-chat' || ['temperature', 'top_p', 'presence_penalty'].includes(name)
        if (!isOfFormat) continue
        t.equal(body[name] === undefined, refused.includes(name), title)
        // The gateway looks for stop sequences itself.
        if (name !== 'stop') t.equal(told.includes(name), refused.includes(name), `${title}, told`)
        size++
      }
    }
  }
  t.comment(`${size} of ${size} cases`)
  t.ok(size > 140)
})

t.test('a request that only tunes its reply is checked too', async t => {
  const request = responsesDialect.parse({ model: 'acme/m', input: 'Hi', temperature: 0.5 })
  const { body, told } = sent('responses', request, endpointAt('openai', 'gpt-5'))
  t.equal(body['temperature'], undefined)
  t.same(told, ['temperature'])
})

t.test('DeepSeek does not think before a call that is forced', async t => {
  const tools = [{ type: 'function', name: 'f', parameters: SCHEMA }]
  const ask = (tool_choice: unknown, more: object = {}) =>
    sent(
      'responses',
      responsesDialect.parse({ model: 'acme/m', input: 'Hi', tools, tool_choice, ...more }),
      endpointAt('deepseek', 'deepseek-v4-pro'),
    )
  for (const choice of ['required', { type: 'function', name: 'f' }]) {
    const plain = ask(choice)
    t.match(plain.body, { thinking: { type: 'disabled' }, reasoning_effort: undefined })
    t.same(plain.told, ['tool_choice'])
    const thinking = ask(choice, { reasoning: { effort: 'high' } })
    t.match(thinking.body, { thinking: { type: 'disabled' }, reasoning_effort: undefined })
    t.same(thinking.told, ['reasoning.effort'])
    t.same(ask(choice, { reasoning: { effort: 'none' } }).told, [])
  }
  t.match(ask('auto', { reasoning: { effort: 'high' } }).body, {
    thinking: undefined,
    reasoning_effort: 'high',
  })
})
