/** What a request says of itself outside the fields of its dialect: client, agent, session, metadata, model. */
import t from 'tap'
import type { ApiRequest, Reply } from '../../src/api/operation.ts'
import { callOf, parseBody, wantsMetadata } from '../../src/api/request-facts.ts'

const request = (headers: Readonly<Record<string, string>>, body: unknown = { model: 'acme/fast' }) =>
  ({
    headers: new Map(Object.entries(headers)),
    body,
    host: 'eu.example.com',
    context: { id: 'gen-1-x' },
    key: {
      hash: 'a'.repeat(64),
      organizationId: 'org',
      workspaceId: 'ws',
      limit: null,
      rates: null,
      loopPolicy: null,
    },
  }) as unknown as ApiRequest

const reply = () => ({}) as Reply

function clientOf(headers: Readonly<Record<string, string>>, body?: unknown) {
  const region = () => 'europe' as const
  return callOf({ name: 'responses' }, request(headers, body), reply(), region, {} as never)
}

t.test('a client that says nothing of itself has no facts, and the region is that of the host', async t => {
  const { client, dataRegion, withMetadata } = clientOf({})
  t.same(
    { client, dataRegion, withMetadata },
    { client: undefined, dataRegion: 'europe', withMetadata: false },
  )
})

t.test('our header names the client before those of similar interfaces', async t => {
  const names = {
    'x-title': 'three',
    'x-openrouter-title': 'two',
    'http-referer': 'https://a',
    referer: 'https://b',
  }
  t.match(clientOf(names).client, { title: 'two', referer: 'https://a' })
  t.match(clientOf({ ...names, 'x-gateway-title': 'one' }).client, { title: 'one' })
})

t.test('agents are named by headers, and on a socket by the fields of the message', async t => {
  t.match(clientOf({ 'x-claude-code-agent-id': 'a', 'x-claude-code-parent-agent-id': 'b' }).client, {
    agent: 'a',
    parentAgent: 'b',
  })
  const body = { client_metadata: { thread_id: 'message', 'x-codex-parent-thread-id': 'parent' } }
  t.match(clientOf({ 'thread-id': 'handshake' }, body).client, { agent: 'message', parentAgent: 'parent' })
  // Fields of another type are not names.
  const odd = { client_metadata: { thread_id: 7 } }
  t.match(clientOf({ 'thread-id': 'handshake' }, odd).client, { agent: 'handshake' })
})

t.test('metadata is requested by the first header that is there, in any case of letters', async t => {
  const wants = (headers: Readonly<Record<string, string>>) => wantsMetadata(new Map(Object.entries(headers)))
  t.same(
    [
      wants({ 'x-gateway-metadata': 'Enabled' }),
      wants({ 'x-openrouter-metadata': 'enabled' }),
      wants({ 'x-gateway-metadata': 'disabled', 'x-openrouter-metadata': 'enabled' }),
      wants({}),
    ],
    [true, true, false, false],
  )
})

t.test('the session of a header is checked like a field of the body, which comes first', async t => {
  const seen: unknown[] = []
  const dialect = { parse: (body: unknown) => void seen.push(body) }
  const sessions = (headers: Readonly<Record<string, string>>, body?: unknown) => {
    parseBody(dialect, request(headers, body), reply())
    return (seen.pop() as { session_id?: unknown }).session_id
  }
  t.equal(sessions({ 'x-session-id': 'ours', 'session-id': 'theirs' }), 'ours')
  t.equal(sessions({ 'x-claude-code-session-id': 'agent' }), 'agent')
  t.equal(sessions({ 'x-session-id': 'header' }, { model: 'm', session_id: 'body' }), 'body')
  t.equal(sessions({ 'session-id': 'handshake' }, { client_metadata: { session_id: 'message' } }), 'message')
  t.equal(sessions({ 'session-id': '\u0001'.repeat(3) }), undefined, 'an odd name of an agent is no fault')
})

t.test('a body that is refused leaves its model for the log line', async t => {
  const dialect = {
    parse() {
      throw new Error('refused')
    },
  }
  const modelOf = (body: unknown) => {
    const told = reply()
    t.throws(() => parseBody(dialect, request({}, body), told))
    return told.requestedModel
  }
  t.same(
    [
      modelOf({ model: 'acme/fast' }),
      modelOf({ models: ['a/b', 'c/d'] }),
      modelOf({ model: 7 }),
      modelOf(null),
    ],
    ['acme/fast', 'a/b', undefined, undefined],
  )
})
