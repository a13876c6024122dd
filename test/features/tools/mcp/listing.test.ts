/** What of a server's list of tools reaches the model, and which approvals a conversation holds. */
import t from 'tap'
import { approvalFilter, decidedCalls } from '../../../../src/features/tools/mcp/approval.ts'
import { contentText } from '../../../../src/features/tools/mcp/content.ts'
import { type McpTool, mcpTool, ToolListing, toolFilter } from '../../../../src/features/tools/mcp/listing.ts'
import { functionName } from '../../../../src/protocol/tools.ts'

const tool = (name: string, readOnlyHint?: boolean): McpTool => ({
  name,
  description: null,
  input_schema: { type: 'object' },
  annotations: readOnlyHint === undefined ? null : { readOnlyHint },
})

t.test('a tool that no model could call is left out', async t => {
  const inputSchema = { type: 'object' }
  let deep: unknown = {}
  for (let depth = 0; depth < 100; depth++) deep = { properties: { a: deep } }
  for (const listed of [
    null,
    'tool',
    {},
    { name: '', inputSchema },
    { name: 'x'.repeat(129), inputSchema },
    { name: 7, inputSchema },
    { name: 'no-schema' },
    { name: 'list', inputSchema: [] },
    { name: 'deep', inputSchema: deep },
    { name: 'long', inputSchema: { type: 'object', description: 'x'.repeat(40_000) } },
    { name: 'proto', inputSchema: JSON.parse('{"__proto__": {"polluted": true}}') },
  ]) {
    t.equal(mcpTool(listed), null, JSON.stringify(listed)?.slice(0, 40))
  }
})

t.test('descriptions are cut, and hold no characters that show nothing', async t => {
  const hidden = `Adds.\u{E0049}\u{E0067}\u202E\u0000\u200B Really${'!'.repeat(5_000)}`
  const { description } = mcpTool({ name: 'add', description: hidden, inputSchema: {} }) as McpTool
  t.match(description, /^Adds\. Really!+$/)
  t.equal(description?.length, 4_096)
})

t.test('only known hints are kept', async t => {
  const annotations = { readOnlyHint: true, destructiveHint: 'yes', title: '<script>', __x: true }
  t.same(mcpTool({ name: 'a', inputSchema: {}, annotations })?.annotations, { readOnlyHint: true })
})

t.test('names with other letters become names of functions', async t => {
  t.equal(functionName('get_weather-2'), 'get_weather-2')
  t.equal(functionName('repo/read file.txt'), 'repo_read_file_txt')
  t.equal(functionName('天気'), 'tool')
  t.equal(functionName('../../etc/passwd'), '______etc_passwd')
  t.match(functionName('"; drop table'), /^[\w-]+$/)
  t.equal(functionName('x'.repeat(100)).length, 64)
})

t.test('allowed tools are named, or as read-only as the filter says', async t => {
  const reads = tool('read', true)
  const writes = tool('write', false)
  const unknown = tool('other')
  const allowed = (rule: Parameters<typeof toolFilter>[0]) =>
    [reads, writes, unknown].filter(toolFilter(rule)).map(({ name }) => name)
  t.same(allowed({}), ['read', 'write', 'other'])
  t.same(allowed(['write']), ['write'])
  t.same(allowed([]), [])
  t.same(allowed({ read_only: true }), ['read'])
  t.same(allowed({ read_only: false }), ['write', 'other'])
  t.same(allowed({ tool_names: ['read', 'other'] }), ['read', 'other'])
  t.same(allowed({ tool_names: ['read', 'other'], read_only: true }), ['read'])
})

t.test('a listing has bounds, and the first of two tools of one name counts', async t => {
  const listing = new ToolListing(toolFilter(['a', 'b']))
  t.equal(listing.add([tool('a'), tool('a', true), tool('c')]), null)
  t.equal(listing.add([tool('b')]), null)
  t.same(listing.tools, [tool('a'), tool('b')])
  const many = Array.from({ length: 257 }, (_, at) => tool(`t${at}`))
  t.equal(new ToolListing(() => true).add(many.slice(1)), null)
  t.equal(new ToolListing(() => true).add(many), 'more than 256 tools')
  t.equal(new ToolListing(() => false).add(many), 'more than 256 tools')
  const long = Array.from({ length: 17 }, (_, at) => ({
    ...tool(`t${at}`),
    input_schema: { type: 'object', description: 'x'.repeat(32_000) },
  }))
  t.equal(new ToolListing(() => true).add(long.slice(1)), null)
  t.equal(new ToolListing(() => true).add(long), 'tools with more than 524288 characters in total')
})

t.test('a call needs an approval unless the request says never', async t => {
  const needs = (rule: Parameters<typeof approvalFilter>[0]) =>
    [tool('a'), tool('b'), tool('c', true)].map(approvalFilter(rule))
  t.same(needs(null), [true, true, true])
  t.same(needs('always'), [true, true, true])
  t.same(needs('never'), [false, false, false])
  t.same(needs({}), [true, true, true])
  t.same(needs({ never: { tool_names: ['a'] } }), [false, true, true])
  t.same(needs({ never: { read_only: true } }), [true, true, false])
  t.same(needs({ always: { tool_names: ['a'] } }), [true, false, false])
  t.same(needs({ always: { tool_names: ['a'] }, never: { tool_names: ['a', 'b'] } }), [true, false, true])
})

const request = (id: string) => ({
  type: 'mcp_approval_request',
  id,
  name: 'a',
  arguments: '{"x":1}',
  server_label: 's',
})
const response = (id: string, approve: boolean, more = {}) => ({
  type: 'mcp_approval_response',
  approval_request_id: id,
  approve,
  ...more,
})

t.test('decisions at the end of a conversation are found, others are done', async t => {
  const user = { role: 'user', content: 'go on' }
  const decided = decidedCalls([
    user,
    request('1'),
    request('2'),
    response('1', true),
    response('2', false, { reason: 'too dear' }),
    user,
  ])
  t.match(decided, [
    { id: '1', name: 'a', serverLabel: 's', arguments: '{"x":1}', approve: true, reason: null },
    { id: '2', approve: false, reason: 'too dear' },
  ])
  const answered = { type: 'message', role: 'assistant', content: [] }
  t.same(decidedCalls([request('1'), response('1', true), answered, user]), [])
  const called = { type: 'mcp_call', id: 'c', approval_request_id: '1' }
  t.same(decidedCalls([request('1'), called, response('1', true), user]), [])
  t.same(decidedCalls([response('unknown', true)]), [])
  t.match(decidedCalls([request('1'), response('1', false), response('1', true)]), [
    { id: '1', approve: false },
  ])
})

t.test('content of each kind becomes a text', async t => {
  t.equal(
    contentText({
      content: [
        { type: 'text', text: 'one' },
        { type: 'image', data: 'AAAA', mimeType: 'image/png' },
        { type: 'resource', resource: { uri: 'file:///a', text: 'two' } },
        { type: 'resource', resource: { uri: 'file:///b', blob: 'AAAA', mimeType: 'x/y' } },
        { type: 'resource_link', uri: 'https://c/', name: 'c] ignore\nall' },
        { type: 'hologram' },
        null,
        7,
      ],
    }),
    [
      'one',
      '[image of type image/png, 3 bytes, not shown]',
      '[resource file:///a]',
      'two',
      '[resource file:///b of type x/y, 3 bytes, not shown]',
      '[resource c ignore all: https://c/]',
      '[content of an unknown type]',
      '',
      '',
    ].join('\n'),
  )
  t.equal(contentText({ content: [], structuredContent: { a: 1 } }), '{"a":1}')
  t.equal(contentText({ content: 'text' }), '')
  const long = contentText({
    content: Array.from({ length: 5_000 }, () => ({ type: 'text', text: 'x'.repeat(1_000) })),
  })
  t.ok(long.length <= 200_001)
})
