/**
 * What receivers demand of requests: each rule, through each door, in each format and at the rows that differ. The cases
 * are generated, and the test tells how many there are.
 */
import t from 'tap'
import type { Json } from '../../src/base/json.ts'
import { outgoingRequest } from '../../src/formats/outgoing.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { FORMAT_NAMES, type FormatName, type Quirk } from '../../src/protocol/provider.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { chatCompletions, gemini, messages, responsesDialect } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'

interface Call {
  readonly id: string
  readonly name: string
  readonly args: string
}
type Said =
  | { readonly system: string }
  | { readonly user: string }
  | { readonly calls: readonly Call[] }
  | { readonly output: string; readonly id: string; readonly failed?: true; readonly image?: true }

interface Asked {
  readonly turns: readonly Said[]
  readonly tools: readonly string[]
  readonly schema?: Json
}

const PNG = 'iVBORw0KGgo='
const SCHEMA = { type: 'object', properties: { a: { type: 'integer' } } }
const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return { text }
  }
}

/** The same conversation as a client of each door writes it. */
const DOORS: Readonly<
  Record<'responses' | 'chat-completions' | 'messages' | 'gemini', (asked: Asked) => ResponsesRequest>
> = {
  responses: ({ turns, tools, schema }) =>
    responsesDialect.parse({
      model: 'acme/m',
      tools: tools.map(name => ({ type: 'function', name, parameters: SCHEMA })),
      ...(schema === undefined ? {} : { text: { format: { type: 'json_schema', name: 's', schema } } }),
      input: turns.flatMap((said): object[] => {
        if ('system' in said) return [{ role: 'developer', content: said.system }]
        if ('user' in said) return [{ role: 'user', content: said.user }]
        if ('calls' in said)
          return said.calls.map(({ id, name, args }) => ({
            type: 'function_call',
            call_id: id,
            name,
            arguments: args,
          }))
        const output = said.image
          ? [
              { type: 'input_text', text: said.output },
              { type: 'input_image', detail: 'auto', image_url: `data:image/png;base64,${PNG}` },
            ]
          : said.output
        return [
          {
            type: 'function_call_output',
            call_id: said.id,
            output,
            ...(said.failed ? { is_error: true } : {}),
          },
        ]
      }),
    }),
  'chat-completions': ({ turns, tools, schema }) =>
    chatCompletions.parse({
      model: 'acme/m',
      tools: tools.map(name => ({ type: 'function', function: { name, parameters: SCHEMA } })),
      ...(schema === undefined
        ? {}
        : { response_format: { type: 'json_schema', json_schema: { name: 's', schema } } }),
      messages: turns.map(said => {
        if ('system' in said) return { role: 'system', content: said.system }
        if ('user' in said) return { role: 'user', content: said.user }
        if ('calls' in said)
          return {
            role: 'assistant',
            content: null,
            tool_calls: said.calls.map(({ id, name, args }) => ({
              id,
              type: 'function',
              function: { name, arguments: args },
            })),
          }
        return { role: 'tool', tool_call_id: said.id, content: said.output }
      }),
    }),
  messages: ({ turns, tools, schema }) =>
    messages.parse({
      model: 'acme/m',
      max_tokens: 99,
      tools: tools.map(name => ({ name: name.replaceAll('.', '_'), input_schema: SCHEMA })),
      ...(schema === undefined ? {} : { output_config: { format: { type: 'json_schema', schema } } }),
      messages: turns.map(said => {
        if ('system' in said) return { role: 'system', content: said.system }
        if ('user' in said) return { role: 'user', content: said.user }
        if ('calls' in said)
          return {
            role: 'assistant',
            content: said.calls.map(({ id, name, args }) => ({
              type: 'tool_use',
              id,
              name: name.replaceAll('.', '_'),
              input: parsed(args),
            })),
          }
        const content = said.image
          ? [
              { type: 'text', text: said.output },
              { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } },
            ]
          : said.output
        return {
          role: 'user',
          content: [
            {
              type: 'tool_result',
              tool_use_id: said.id,
              content,
              ...(said.failed ? { is_error: true } : {}),
            },
          ],
        }
      }),
    }),
  gemini: ({ turns, tools, schema }) => {
    const named = new Map(
      turns.flatMap(said => ('calls' in said ? said.calls.map(({ id, name }) => [id, name]) : [])),
    )
    return gemini.parse({
      model: 'acme/m',
      tools: [{ functionDeclarations: tools.map(name => ({ name, parametersJsonSchema: SCHEMA })) }],
      ...(schema === undefined
        ? {}
        : { generationConfig: { responseMimeType: 'application/json', responseJsonSchema: schema } }),
      ...(turns.some(said => 'system' in said)
        ? {
            systemInstruction: {
              parts: turns.flatMap(said => ('system' in said ? [{ text: said.system }] : [])),
            },
          }
        : {}),
      contents: turns.flatMap((said): object[] => {
        if ('system' in said) return []
        if ('user' in said) return [{ role: 'user', parts: [{ text: said.user }] }]
        if ('calls' in said)
          return [
            {
              role: 'model',
              parts: said.calls.map(({ id, name, args }) => ({
                functionCall: { id, name, args: parsed(args) },
              })),
            },
          ]
        const response = said.failed ? { error: said.output } : { output: said.output }
        return [
          {
            role: 'user',
            parts: [{ functionResponse: { id: said.id, name: named.get(said.id), response } }],
          },
        ]
      }),
    })
  },
}

/** Receivers: each format, and the rows that demand more. */
const RECEIVERS: readonly {
  readonly name: string
  readonly format: FormatName
  readonly quirks: readonly Quirk[]
}[] = [
  ...FORMAT_NAMES.map(format => ({ name: format, format, quirks: [] })),
  { name: 'mistral', format: 'openai-chat', quirks: ['nine-letter-call-ids'] },
  { name: 'openai chat', format: 'openai-chat', quirks: ['openai-limits'] },
  { name: 'vllm', format: 'openai-chat', quirks: ['strict-template', 'system-role'] },
  { name: 'deepseek', format: 'openai-chat', quirks: ['replay-reasoning'] },
  { name: 'moonshot', format: 'openai-chat', quirks: ['replay-reasoning', 'blank-reasoning'] },
]

/** What each receiver takes, as its API documents it: written out here, so that the table cannot agree with itself. */
const NAMES: Readonly<Record<FormatName, RegExp>> = {
  'openai-chat': /^[a-zA-Z0-9_-]{1,64}$/,
  'openai-responses': /^[a-zA-Z0-9_-]{1,64}$/,
  'anthropic-messages': /^[a-zA-Z0-9_-]{1,128}$/,
  'google-gemini': /^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$/,
  'bedrock-converse': /^[a-zA-Z0-9_-]{1,64}$/,
}
const IDS: Readonly<Record<string, RegExp>> = {
  'openai-responses': /^[\s\S]{1,64}$/,
  'anthropic-messages': /^[a-zA-Z0-9_-]+$/,
  'bedrock-converse': /^[a-zA-Z0-9_.:-]{1,64}$/,
  mistral: /^[a-zA-Z0-9]{9}$/,
  'openai chat': /^[\s\S]{1,40}$/,
}

interface SentCall {
  readonly id: string
  readonly name: string
  readonly args: unknown
}
type Turn =
  | { readonly kind: 'system' | 'user'; readonly hasImage: boolean }
  | { readonly kind: 'calls'; readonly calls: readonly SentCall[]; readonly thought: unknown }
  | { readonly kind: 'result'; readonly id: string; readonly text: string; readonly isError: boolean }

/** What went out, whatever the format: messages in order. */
interface Sent {
  readonly tools: readonly string[]
  readonly turns: readonly Turn[]
  readonly schema: Json | undefined
}

/** What is at the path; undefined: nothing is. */
const at = (value: unknown, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((found, name) => (found as Json | undefined)?.[name], value)
const rows = (value: unknown, ...path: readonly string[]): readonly Json[] =>
  (at(value, ...path) ?? []) as readonly Json[]
const text = (value: unknown, ...path: readonly string[]): string => String(at(value, ...path))
const said = (hasImage: boolean, role = 'user'): Turn => ({
  kind: role === 'user' ? 'user' : 'system',
  hasImage,
})

const READERS: Readonly<Record<FormatName, (body: Json) => Sent>> = {
  'openai-chat': body => ({
    tools: rows(body, 'tools').map(tool => text(tool, 'function', 'name')),
    schema: at(body, 'response_format', 'json_schema', 'schema') as Json | undefined,
    turns: rows(body, 'messages').map((message): Turn => {
      const content = text(message, 'content')
      if (message['role'] === 'tool')
        return {
          kind: 'result',
          id: text(message, 'tool_call_id'),
          text: content,
          isError: content.includes('error'),
        }
      if (message['tool_calls'] === undefined)
        return said(JSON.stringify(message['content']).includes(PNG), text(message, 'role'))
      const calls = rows(message, 'tool_calls').map(each => ({
        id: text(each, 'id'),
        name: text(each, 'function', 'name'),
        args: at(each, 'function', 'arguments'),
      }))
      return { kind: 'calls', calls, thought: message['reasoning_content'] }
    }),
  }),
  'openai-responses': body => ({
    tools: rows(body, 'tools').map(tool => text(tool, 'name')),
    schema: at(body, 'text', 'format', 'schema') as Json | undefined,
    turns: rows(body, 'input').map((item): Turn => {
      if (item['type'] === 'function_call') {
        const { call_id: id, name, arguments: args } = item
        return { kind: 'calls', calls: [{ id: String(id), name: String(name), args }], thought: undefined }
      }
      if (item['type'] !== 'function_call_output') return said(false, text(item, 'role'))
      const output = JSON.stringify(item['output'])
      return { kind: 'result', id: text(item, 'call_id'), text: output, isError: output.includes('error') }
    }),
  }),
  'anthropic-messages': body => ({
    tools: rows(body, 'tools').map(tool => text(tool, 'name')),
    schema: at(body, 'output_config', 'format', 'schema') as Json | undefined,
    turns: turnsOf(rows(body, 'messages'), 'content', block => {
      if (block['type'] === 'tool_use')
        return { id: text(block, 'id'), name: text(block, 'name'), args: block['input'] }
      if (block['type'] !== 'tool_result') return said(false)
      const isError = block['is_error'] === true
      return {
        kind: 'result',
        id: text(block, 'tool_use_id'),
        text: JSON.stringify(block['content']),
        isError,
      }
    }),
  }),
  'google-gemini': body => ({
    tools: rows(body, 'tools', '0', 'functionDeclarations').map(tool => text(tool, 'name')),
    schema: at(body, 'generationConfig', 'responseJsonSchema') as Json | undefined,
    turns: turnsOf(rows(body, 'contents'), 'parts', ({ functionCall, functionResponse, inlineData }) => {
      if (functionCall !== undefined)
        return {
          id: text(functionCall, 'id'),
          name: text(functionCall, 'name'),
          args: at(functionCall, 'args'),
        }
      if (functionResponse === undefined) return said(inlineData !== undefined)
      const isError = at(functionResponse, 'response', 'error') !== undefined
      return {
        kind: 'result',
        id: text(functionResponse, 'id'),
        text: JSON.stringify(functionResponse),
        isError,
      }
    }),
  }),
  'bedrock-converse': body => ({
    tools: rows(body, 'toolConfig', 'tools').map(tool => text(tool, 'toolSpec', 'name')),
    schema: schemaIn(at(body, 'outputConfig', 'textFormat', 'structure', 'jsonSchema', 'schema')),
    turns: turnsOf(rows(body, 'messages'), 'content', ({ toolUse, toolResult }) => {
      if (toolUse !== undefined)
        return { id: text(toolUse, 'toolUseId'), name: text(toolUse, 'name'), args: at(toolUse, 'input') }
      if (toolResult === undefined) return said(false)
      const isError = at(toolResult, 'status') === 'error'
      return { kind: 'result', id: text(toolResult, 'toolUseId'), text: JSON.stringify(toolResult), isError }
    }),
  }),
}

function schemaIn(json: unknown): Json | undefined {
  return typeof json === 'string' ? (JSON.parse(json) as Json) : undefined
}

/** The calls of one message are one turn; each other block is a turn of its own. */
function turnsOf(
  messages: readonly Json[],
  content: string,
  read: (block: Json) => SentCall | Turn,
): readonly Turn[] {
  return messages.flatMap(message => {
    const blocks = rows(message, content).map(read)
    const calls = blocks.flatMap(block => ('kind' in block ? [] : [block]))
    const others = blocks.flatMap(block => ('kind' in block ? [block] : []))
    return calls.length === 0 ? others : [{ kind: 'calls', calls, thought: undefined }, ...others]
  })
}

const call = (id: string, name = 'f', args = '{}'): Call => ({ id, name, args })
const LONG = `mcp__server__${'n'.repeat(70)}`
const hello = { user: 'Go' }

/** One conversation for each rule; results say the place of their call: `r0` answers the first call of all. */
const CASES: readonly { readonly rule: string; readonly asked: Asked }[] = [
  {
    rule: 'names: long ones, two alike in their beginning',
    asked: {
      turns: [hello, { calls: [call('c', LONG)] }, { id: 'c', output: 'r0' }],
      tools: [LONG, `${LONG}2`],
    },
  },
  {
    rule: 'names: a dot beside the name that it would become',
    asked: {
      turns: [hello, { calls: [call('c', 'srv.tool')] }, { id: 'c', output: 'r0' }],
      tools: ['srv.tool', 'srv'],
    },
  },
  {
    rule: 'ids: foreign letters that would become alike',
    asked: {
      turns: [
        hello,
        { calls: [call('fs.read:0'), call('fs:read.0')] },
        { id: 'fs.read:0', output: 'r0' },
        { id: 'fs:read.0', output: 'r1' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'ids: 83 characters with a bar',
    asked: {
      turns: [
        hello,
        { calls: [call(`call_${'x'.repeat(70)}|fc_12345`)] },
        { id: `call_${'x'.repeat(70)}|fc_12345`, output: 'r0' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'ids: of other providers',
    asked: {
      turns: [
        hello,
        { calls: [call('toolu_01ApYXdC1pESwmh5Tek2bMTq'), call('functions.Bash:0')] },
        { id: 'toolu_01ApYXdC1pESwmh5Tek2bMTq', output: 'r0' },
        { id: 'functions.Bash:0', output: 'r1' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'ids: again in the next turn',
    asked: {
      turns: [
        hello,
        { calls: [call('call_0')] },
        { id: 'call_0', output: 'r0' },
        { calls: [call('call_0')] },
        { id: 'call_0', output: 'r1' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'ids: twice in one turn',
    asked: {
      turns: [
        hello,
        { calls: [call('call_0'), call('call_0')] },
        { id: 'call_0', output: 'r0' },
        { id: 'call_0', output: 'r1' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'outputs: a message between them',
    asked: {
      turns: [
        hello,
        { calls: [call('a1'), call('b1')] },
        { id: 'a1', output: 'r0' },
        { user: 'note' },
        { id: 'b1', output: 'r1' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'outputs: a message before them',
    asked: {
      turns: [hello, { calls: [call('a1')] }, { user: 'note' }, { id: 'a1', output: 'r0' }],
      tools: ['f'],
    },
  },
  {
    rule: 'arguments: cut, a list, nothing',
    asked: {
      turns: [
        hello,
        { calls: [call('a1', 'f', '{"a":'), call('b1', 'f', '[1]'), call('c1', 'f', '')] },
        { id: 'a1', output: 'r0' },
        { id: 'b1', output: 'r1' },
        { id: 'c1', output: 'r2' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'failures',
    asked: {
      turns: [hello, { calls: [call('a1')] }, { id: 'a1', output: 'r0', failed: true }],
      tools: ['f'],
    },
  },
  {
    rule: 'images in results',
    asked: {
      turns: [
        hello,
        { calls: [call('a1'), call('b1')] },
        { id: 'a1', output: 'r0', image: true },
        { id: 'b1', output: 'r1' },
      ],
      tools: ['f'],
    },
  },
  {
    rule: 'system messages at the beginning',
    asked: { turns: [{ system: 'One' }, { system: 'Two' }, hello], tools: [] },
  },
  {
    rule: 'schemas',
    asked: {
      turns: [hello],
      tools: [],
      schema: {
        type: 'object',
        properties: {
          score: { type: 'integer', minimum: 1 },
          tags: { type: 'array', minItems: 2, items: { type: 'string', maxLength: 9 } },
        },
      },
    },
  },
]

/** Some clients cannot write a case: names of Messages have no dots, chat has no marks, Gemini's ids are matched by its dialect. */
function canSay(door: keyof typeof DOORS, { rule, asked }: (typeof CASES)[number]): boolean {
  if (door === 'messages' && (rule.includes('dot') || rule.startsWith('system'))) return false
  if (
    door === 'gemini' &&
    (rule.startsWith('outputs') || rule.startsWith('ids: twice') || rule.startsWith('images'))
  )
    return false
  if ((door === 'messages' || door === 'gemini') && rule.startsWith('arguments')) return false
  const isMarked = asked.turns.some(said => 'output' in said && (said.failed === true || said.image === true))
  return door !== 'chat-completions' || !isMarked
}

t.test('each rule through each door at each receiver', async t => {
  let size = 0
  for (const receiver of RECEIVERS) {
    for (const door of Object.keys(DOORS) as (keyof typeof DOORS)[]) {
      for (const one of CASES) {
        if (!canSay(door, one)) continue
        const { format, name, quirks } = receiver
        const request = DOORS[door](one.asked)
        const isOwnApi = FORMATS[format].dialect === door
        const encode = (): Json =>
          FORMATS[format].encode(
            {
              request: outgoingRequest(request, FORMATS[format], door),
              stream: false,
              endUser: null,
              isOwnApi,
            },
            endpointOf(format, { quirks }),
          ).body
        const body = encode()
        const title = `${one.rule}: ${door} to ${name}`
        const wrong = faultsOf(READERS[format](body), { door, format, isOwnApi, name, one })
        t.same(wrong, [], title)
        t.equal(JSON.stringify(encode()), JSON.stringify(body), `${title}, the same again`)
        size++
      }
    }
  }
  t.comment(
    `${size} of ${size} cases: ${RECEIVERS.length} receivers, ${Object.keys(DOORS).length} doors, ${CASES.length} conversations`,
  )
  t.ok(size > 400)
})

interface Judged {
  readonly door: string
  readonly format: FormatName
  readonly isOwnApi: boolean
  readonly name: string
  readonly one: (typeof CASES)[number]
}

/** What the receiver would refuse. */
function faultsOf(
  { tools, turns, schema }: Sent,
  { door, format, isOwnApi, name, one }: Judged,
): readonly string[] {
  const faults: string[] = []
  const must = (holds: boolean, what: string): void => {
    if (!holds) faults.push(what)
  }
  const calls = turns.flatMap(turn => (turn.kind === 'calls' ? turn.calls : []))
  for (const tool of [...tools, ...calls.map(each => each.name)])
    must(NAMES[format].test(tool), `name ${tool}`)
  must(new Set(tools).size === tools.length, 'two tools have one name')
  for (const each of calls) must(tools.includes(each.name), `a call of ${each.name}, which is no tool`)
  const ids = IDS[name] ?? IDS[format] ?? /./
  for (const { id } of calls) must(ids.test(id), `id ${id}`)
  if (format !== 'google-gemini' && format !== 'openai-chat')
    must(new Set(calls.map(({ id }) => id)).size === calls.length, 'two calls have one id')
  const results = turns.flatMap(turn => (turn.kind === 'result' ? [turn] : []))
  const answered = new Map<string, string[]>()
  for (const { id } of calls) answered.set(id, [])
  for (const { id, text } of results) answered.get(id)?.push(text)
  for (const [at, { id }] of calls.entries())
    must(
      answered.get(id)?.some(text => text.includes(`r${at}`)) === true,
      `call ${at} has not its own result`,
    )
  if (format !== 'openai-responses')
    for (const [at, turn] of turns.entries())
      if (turn.kind === 'result')
        must(['calls', 'result'].includes(turns[at - 1]?.kind ?? ''), 'a result not behind its call')
  const isObject =
    format === 'anthropic-messages' || format === 'google-gemini' || format === 'bedrock-converse'
  for (const { args } of calls) {
    if (isObject)
      must(typeof args === 'object' && args !== null && !Array.isArray(args), 'arguments are no object')
    else if (name === 'vllm')
      must(/^\{.*\}$/s.test(String(args)) && parsed(String(args)) !== null, 'arguments are no object')
  }
  if (one.rule === 'failures') must(results[0]?.isError === true, 'the failure is not told')
  if (one.rule.startsWith('images') && (format === 'openai-chat' || format === 'google-gemini'))
    must(
      turns
        .slice(turns.lastIndexOf(results.at(-1) as Turn))
        .some(turn => 'hasImage' in turn && turn.hasImage),
      'the image is lost',
    )
  const systems = turns.filter(turn => turn.kind === 'system').length
  if (one.rule.startsWith('system') && format === 'openai-chat' && (!isOwnApi || name === 'vllm'))
    must(systems === 1, `${systems} system messages`)
  if (
    one.rule === 'schemas' &&
    (format === 'anthropic-messages' || format === 'bedrock-converse') &&
    door !== 'messages'
  ) {
    must(schema?.['additionalProperties'] === false, 'an open object')
    must(
      !/"(?:minimum|maxLength)":|"minItems":2/.test(
        JSON.stringify({ ...schema, description: '' }).replaceAll('\\"', ''),
      ),
      'a keyword that is refused',
    )
  }
  const thought = { deepseek: '', moonshot: ' ' }[name]
  if (thought !== undefined)
    for (const turn of turns)
      if (turn.kind === 'calls') must(turn.thought === thought, 'a turn with calls without a thought')
  return faults
}

t.test('a conversation keeps its names and ids while it grows', async t => {
  const turns: Said[] = [hello]
  for (let at = 0; at < 6; at++)
    turns.push(
      { calls: [call('call_0'), call(`x.${at}`)] },
      { id: 'call_0', output: 'r' },
      { id: `x.${at}`, output: 'r' },
    )
  for (const { format, name, quirks } of RECEIVERS) {
    const sent = (length: number): string => {
      const request = outgoingRequest(
        DOORS.responses({ turns: turns.slice(0, length), tools: ['f'] }),
        FORMATS[format],
        'responses',
      )
      const { body } = FORMATS[format].encode(
        { request, stream: false, endUser: null },
        endpointOf(format, { quirks }),
      )
      const list = (body['messages'] ?? body['contents'] ?? body['input']) as readonly unknown[]
      return JSON.stringify(list).slice(0, -1)
    }
    t.ok(sent(turns.length).startsWith(sent(turns.length - 3)), name)
  }
})
