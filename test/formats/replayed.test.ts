/** A conversation goes on at any provider: what earlier replies brought is sent back, left out, or refused by name. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { isGatewayType, isRunElsewhere, omitItem } from '../../src/formats/replayed.ts'
import { FORMATS } from '../../src/formats/table.ts'
import { fitTools } from '../../src/pipeline/tool-calls/client-tools.ts'
import type { OutputItem } from '../../src/protocol/items.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { parseResponsesRequest } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'
import { goldens } from '../support/goldens.ts'
import { recordings, withoutRecordings } from '../support/recordings.ts'

const NAMES = Object.keys(FORMATS) as FormatName[]
const OTHERS = NAMES.filter(name => name !== 'openai-responses')

type Item = Readonly<Record<string, unknown>>

const USER = { role: 'user', content: 'Hi' }
const SAID = { role: 'assistant', content: 'Hello' }

function bodyOf(format: FormatName, input: readonly Item[]): unknown {
  const given = parseResponsesRequest({ model: 'acme/fast-1', input })
  const request = fitTools(given, FORMATS[format], endpointOf(format))?.prompt ?? given
  const { body } = FORMATS[format].encode({ request, stream: true, endUser: null }, endpointOf(format))
  return JSON.parse(JSON.stringify(body))
}

/** Each kind as a provider of each other format gives it. */
const SPENT: readonly Item[] = [
  { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'q' } },
  { type: 'web_search_call', id: 'srvtoolu_1', status: 'failed', action: { type: 'open_page', url: 'u' } },
  { type: 'file_search_call', id: 'fs_1', status: 'completed', queries: ['q'], results: null },
  { type: 'mcp_call', id: 'mcp_1', name: 'f', arguments: '{}', server_label: 's', output: 'o' },
  { type: 'mcp_list_tools', id: 'mcpl_1', server_label: 's', tools: [] },
  { type: 'gateway:tool_search', id: 'srvtoolu_2', status: 'completed', query: 'q' },
  { type: 'openrouter:web_search', id: 'st_1', status: 'completed' },
]

const CODE = { type: 'code_interpreter_call', id: 'ci_1', status: 'completed', code: '1', outputs: [] }
const IMAGE = { type: 'image_generation_call', id: 'ig_1', status: 'completed', result: 'QUJD' }

t.test('what a provider ran by itself is left out where it has no form', async t => {
  for (const format of OTHERS) {
    for (const item of SPENT) {
      const name = `${item['type']} at ${format}`
      t.strictSame(bodyOf(format, [USER, item, SAID, USER]), bodyOf(format, [USER, SAID, USER]), name)
    }
  }
  for (const format of ['openai-chat', 'anthropic-messages'] as const) {
    for (const item of [CODE, IMAGE])
      t.strictSame(bodyOf(format, [USER, item, SAID, USER]), bodyOf(format, [USER, SAID, USER]))
  }
})

t.test('the time that the gateway told is a call and its output at every provider', async t => {
  const output = '{"datetime":"2026-03-01T09:00:00Z","timezone":"UTC"}'
  const pair = (call_id: string): readonly Item[] => [
    { type: 'function_call', call_id, name: 'datetime', arguments: '{"timezone":"UTC"}' },
    { type: 'function_call_output', call_id, output },
  ]
  for (const format of NAMES) {
    for (const prefix of ['gateway', 'openrouter']) {
      const told = { type: `${prefix}:datetime`, datetime: '2026-03-01T09:00:00Z', timezone: 'UTC' }
      const named = { ...told, id: 'gdt_1', status: 'completed' }
      const of = (items: readonly Item[]) => bodyOf(format, [USER, ...items, SAID, USER])
      t.strictSame(of([named]), of(pair('gdt_1')), `${prefix} at ${format}`)
      t.strictSame(of([told]), of(pair('call_1')), `${prefix} without an id at ${format}`)
      t.match(JSON.stringify(of([named])), /2026-03-01T09:00:00Z/)
    }
  }
})

t.test('a provider of the Responses format gets back only what is from one', async t => {
  const input = (item: Item) => (bodyOf('openai-responses', [USER, item, USER]) as { input: Item[] }).input
  for (const item of [CODE, IMAGE, ...SPENT.slice(2, 5)]) {
    t.match(input(item)[1], { type: item['type'], id: item['id'] })
    // An MCP call of the gateway becomes a function call and its output.
    const ours = item['type'] === 'mcp_call' ? [] : ['st_1']
    for (const id of [...ours, 'srvtoolu_1', 'mcptoolu_1'])
      t.equal(input({ ...item, id }).length, 2, `${item['type']} ${id}`)
    t.equal(input({ ...item, signature: 'from Gemini' }).length, 2)
  }
})

t.test('an MCP call of the gateway is a function call and its output at every provider', async t => {
  const call = { type: 'mcp_call', id: 'st_1', server_label: 's', name: 'read file', arguments: '{"a":1}' }
  const pair = (output: string): readonly Item[] => [
    { type: 'function_call', call_id: 'st_1', name: 'read_file', arguments: '{"a":1}' },
    { type: 'function_call_output', call_id: 'st_1', output },
  ]
  const asked = { type: 'mcp_approval_request', id: 'st_2', name: 'f', arguments: '{}', server_label: 's' }
  const decided = { type: 'mcp_approval_response', approval_request_id: 'st_2', approve: true }
  const listed = { type: 'mcp_list_tools', id: 'st_3', server_label: 's', tools: [] }
  for (const format of NAMES) {
    const of = (...items: readonly Item[]) => bodyOf(format, [USER, ...items, SAID, USER])
    t.strictSame(of({ ...call, output: 'x' }), of(...pair('x')), format)
    t.strictSame(of({ ...call, output: null, error: 'gone' }), of(...pair('{"error":"gone"}')), format)
    t.doesNotThrow(() => of({ ...call, output: 'x', arguments: 'no JSON' }), format)
    t.strictSame(of(asked, decided, listed), of(), format)
  }
})

const WITHOUT_COMPUTER = OTHERS.filter(format => format !== 'anthropic-messages')
const REFUSED: readonly (readonly [item: Item, at: readonly FormatName[]])[] = [
  [{ type: 'compaction', id: 'cmp_1', encrypted_content: 'sealed' }, OTHERS],
  [{ type: 'mcp_approval_request', id: 'mcpr_1', name: 'f', arguments: '{}', server_label: 's' }, OTHERS],
  [{ type: 'mcp_approval_response', approval_request_id: 'mcpr_1', approve: true }, OTHERS],
  [{ type: 'computer_call', call_id: 'c', status: 'completed', pending_safety_checks: [] }, WITHOUT_COMPUTER],
  [{ type: 'computer_call_output', call_id: 'c', output: { type: 'computer_screenshot' } }, WITHOUT_COMPUTER],
  [{ type: 'agent_message', author: 'a', recipient: 'b', content: [] }, OTHERS],
]

t.test('a shell command and its output go to every provider', async t => {
  const action = { commands: ['ls'] }
  const output = [{ stdout: 'a.txt', stderr: '', outcome: { type: 'exit', exit_code: 0 } }]
  const pairs: readonly (readonly Item[])[] = [
    [
      { type: 'shell_call', call_id: 'c', action },
      { type: 'shell_call_output', call_id: 'c', output },
    ],
    [
      {
        type: 'local_shell_call',
        id: 'l',
        call_id: 'c',
        status: 'completed',
        action: { type: 'exec', command: ['ls'], env: {} },
      },
      { type: 'local_shell_call_output', id: 'c', output: 'a.txt', status: 'completed' },
    ],
  ]
  for (const format of NAMES) {
    for (const pair of pairs) t.match(JSON.stringify(bodyOf(format, [USER, ...pair, USER])), 'a.txt', format)
  }
})

t.test('a patch and what became of it go to every provider, as they know it', async t => {
  const operation = { type: 'update_file', path: 'a.ts', diff: '@@\n-old\n+new' }
  const output = { type: 'apply_patch_call_output', call_id: 'c', status: 'failed', output: 'no such file' }
  for (const type of ['apply_patch_call', 'gateway:apply_patch', 'openrouter:apply_patch']) {
    const call = { type, id: 'st_1', call_id: 'c', status: 'completed', operation }
    for (const format of NAMES) {
      const body = JSON.stringify(bodyOf(format, [USER, call, output, USER]))
      t.match(body, 'no such file', `${type} at ${format}`)
      t.match(body, 'a.ts')
      t.match(body, format === 'openai-responses' ? '"type":"apply_patch_call"' : 'apply_patch')
      t.notMatch(body, 'gateway:')
    }
  }
  for (const format of NAMES) {
    const wrong = { type: 'gateway:apply_patch', id: 'st_1', call_id: 'c', status: 'incomplete' }
    t.notMatch(
      JSON.stringify(bodyOf(format, [USER, wrong, USER])),
      '"apply_patch_call"',
      'a wrong one never was a call',
    )
  }
})

t.test('what a client or its tools said is never left out in silence', async t => {
  for (const [item, formats] of REFUSED) {
    t.throws(() => omitItem(String(item['type']), 'input[0]'), { code: 'unprocessable' })
    for (const format of formats) {
      const name = `${item['type']} at ${format}`
      try {
        bodyOf(format, [USER, item, USER])
        t.fail(name)
      } catch (thrown) {
        if (!(thrown instanceof GatewayError)) throw thrown
        t.equal(thrown.status, 422, name)
        t.match(thrown.message, /^input\[1\](\.type)?: /, name)
        t.notMatch(thrown.message, /sealed/, name)
      }
    }
  }
})

/** Kinds that a provider asks its client to run, or that only their maker can read: another format may refuse them. */
const CLIENTS_OWN: ReadonlySet<string> = new Set([
  'compaction',
  'computer_call',
  'local_shell_call',
  'shell_call',
  'shell_call_output',
  'apply_patch_call',
  'mcp_approval_request',
])

/** What the vocabulary of `input` does not have: such an item is refused before any format sees it. */
const NOT_IN_INPUT: ReadonlySet<string> = new Set([
  'tool_search_call',
  'tool_search_output',
  'x_search_call',
  'program',
  'program_output',
])

/** Sends every item of a reply to every format; says which were refused, and how many passed. */
function sentBack(output: readonly OutputItem[]): { readonly passed: number; readonly refused: string[] } {
  let passed = 0
  const refused: string[] = []
  for (const item of output) {
    if (CLIENTS_OWN.has(item.type) || NOT_IN_INPUT.has(item.type)) continue
    // Tools in namespaces are known to this format alone; its providers never answer another one's request.
    if ('namespace' in item) continue
    for (const format of NAMES) {
      try {
        bodyOf(format, [USER, { ...item }, ...answerTo(item), SAID, USER])
        passed++
      } catch (thrown) {
        if (!(thrown instanceof GatewayError)) throw thrown
        refused.push(`${item.type} at ${format}: ${thrown.message}`)
      }
    }
  }
  return { passed, refused }
}

function answerTo(item: OutputItem): Item[] {
  const { type, call_id } = item as { readonly type: string; readonly call_id?: unknown }
  return type === 'function_call' || type === 'custom_tool_call'
    ? [{ type: `${type}_output`, call_id, output: 'done' }]
    : []
}

/** The output of a reply that came to a good end; none of one that failed. */
function outputOf(format: FormatName, bytes: Buffer, streamed: boolean): readonly OutputItem[] {
  const last = eventsOf(format, bytes, streamed).at(-1)
  return last?.type === 'response.completed' ? last.response.output : []
}

for (const from of NAMES) {
  t.test(`what replies of ${from} brought can be sent back to every format`, async t => {
    const recorded = recordings(from)
      .filter(({ httpStatus }) => httpStatus === null || httpStatus === 200)
      .map(recording => ({ bytes: recording.bytes(), streamed: recording.streamed }))
    if (withoutRecordings !== false) t.comment(withoutRecordings)
    let passed = 0
    const refused = new Set<string>()
    // A call without a name is a provider's nonsense, which nobody could answer.
    const sound = goldens(from).filter(({ name }) => name !== 'wrong-types-everywhere')
    for (const { bytes, streamed } of [...sound, ...recorded]) {
      const found = sentBack(outputOf(from, bytes, streamed))
      passed += found.passed
      for (const one of found.refused) refused.add(one)
    }
    t.strictSame([...refused], [])
    t.comment(`${from}: ${passed} items sent back`)
    // Goldens alone are few.
    t.ok(passed > (withoutRecordings === false ? 100 : 10))
  })
}

t.test('the names of what is spent', async t => {
  omitItem('gateway:anything', 'input[0]')
  t.ok(isGatewayType('openrouter:x') && !isGatewayType('web_search_call'))
  for (const type of ['message', 'function_call', 'custom_tool_call', 'reasoning', '', '__proto__'])
    t.throws(() => omitItem(type, 'input[0]'), { code: 'unprocessable' }, type)
  t.notOk(isRunElsewhere('function_call', 'st_1', 's'), 'only what is spent at all')
  t.notOk(isRunElsewhere('mcp_call', null, undefined))
})
