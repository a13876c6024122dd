/** Replies: what leaves for one answer, and that an answer leaves once. */
import t from 'tap'
import type { Operation } from '../../src/api/operation.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { HttpReply, type ReplyOwner } from '../../src/server/reply.ts'
import type { ResponseSocket } from '../../src/server/response-socket.ts'

/** A socket that notes what is written, and an owner of the reply. */
function start(more: Partial<ReplyOwner> = {}) {
  const sent: { readonly call: string; readonly args: readonly unknown[] }[] = []
  const note =
    (call: string, result: unknown = undefined) =>
    (...args: readonly unknown[]) => {
      sent.push({ call, args })
      return result
    }
  const socket = {
    address: '10.0.0.1',
    isEnded: false,
    send: note('send'),
    sendHead: note('sendHead'),
    open: note('open', true),
    write: note('write', true),
    end: note('end'),
    onProgress: note('onProgress'),
    abort: note('abort'),
    cut: note('cut'),
    pause: note('pause'),
    resume: note('resume'),
  }
  const closed: number[] = []
  const reply = new HttpReply(socket as unknown as ResponseSocket, {
    id: 'gen-1-x',
    generates: false,
    dialect: null,
    bodiless: false,
    closesAfter: status => {
      closed.push(status)
      return status === 413
    },
    ...more,
  })
  const headers = (): Map<string, string> => {
    const list = sent[0]?.args[1] as readonly string[]
    return new Map(
      list.flatMap((name, at) => (at % 2 === 0 ? [[name.toLowerCase(), list[at + 1] ?? '']] : [])),
    )
  }
  return { closed, headers, reply, sent, socket }
}

const refusal = new GatewayError('rate_limit_exceeded', 'Too many requests', {
  retryAfterSeconds: 1.2,
})

t.test('a document leaves whole, with the name of its request', async t => {
  const { closed, headers, reply, sent } = start()
  t.equal(reply.started, false)
  reply.json(200, { answer: 1 })
  t.equal(sent.length, 1)
  t.match(sent[0], { call: 'send', args: ['200 OK', Array, '{"answer":1}', false] })
  t.equal(headers().get('content-type'), 'application/json')
  t.equal(headers().get('x-request-id'), 'gen-1-x')
  t.equal(headers().has('x-generation-id'), false)
  t.equal(headers().get('access-control-allow-origin'), '*')
  t.match(reply, { started: true, ended: true, status: 200 })
  t.same(closed, [200])
})

t.test('a model call has a generation id, and the caller may name the request', async t => {
  const { headers, reply } = start({ generates: true, requestId: 'mine' })
  reply.json(200, {})
  t.equal(headers().get('x-request-id'), 'mine')
  t.equal(headers().get('x-generation-id'), 'gen-1-x')
})

t.test('nobody answers twice', async t => {
  const { reply, sent } = start()
  reply.json(200, {})
  t.throws(() => reply.json(200, {}), /answered twice/)
  t.throws(() => reply.openStream(''), /answered twice/)
  t.equal(sent.length, 1)
})

t.test('nothing is written for a client that has left', async t => {
  const { reply, sent, socket } = start()
  socket.isEnded = true
  reply.json(200, {})
  reply.endStream('x')
  t.same(sent, [])
  t.equal(reply.ended, false)
})

t.test('a header value cannot end its line, and a name is a token', async t => {
  const { headers, reply } = start()
  reply.header('X-Model', ' a\r\nX-Evil: 1\0 b\u00fc ')
  t.throws(() => reply.header('X Evil', '1'), /not a header name/)
  reply.json(200, {})
  t.equal(headers().get('x-model'), 'aX-Evil: 1 b')
})

t.test('a failure says when to come back, in the envelope of its dialect', async t => {
  const plain = start()
  plain.reply.failure(refusal)
  t.match(plain.sent[0], { args: ['429 Too Many Requests'] })
  t.equal(plain.headers().get('retry-after'), '2')
  t.match(JSON.parse(plain.sent[0]?.args[2] as string), {
    error: { code: 429, message: 'Too many requests' },
  })
  t.equal(plain.reply.error, refusal)
  const dialect = {
    name: 'messages',
    idHeader: 'request-id',
    failure: ({ code }: GatewayError, { id }: { readonly id: string }) => ({ type: 'error', code, id }),
    failureHeaders: () => ({ 'X-Should-Retry': 'true' }),
  } as unknown as NonNullable<Operation['dialect']>
  const spoken = start({ dialect })
  spoken.reply.failure(refusal)
  t.same(JSON.parse(spoken.sent[0]?.args[2] as string), {
    type: 'error',
    code: 'rate_limit_exceeded',
    id: 'gen-1-x',
  })
  t.equal(spoken.headers().get('request-id'), 'gen-1-x')
  t.equal(spoken.headers().get('x-should-retry'), 'true')
})

t.test('who brings no key is told how to', async t => {
  const { headers, reply } = start()
  reply.failure(new GatewayError('authentication', 'Missing Authentication header'))
  t.equal(headers().get('www-authenticate'), 'Bearer')
})

t.test('an answer to HEAD has the length of its body, and no body', async t => {
  const { reply, sent } = start({ bodiless: true })
  reply.json(200, { text: 'ü' })
  t.match(sent, [{ call: 'sendHead', args: ['200 OK', Array, Buffer.byteLength('{"text":"ü"}'), false] }])
})

t.test('what the owner closes is closed', async t => {
  const { reply, sent } = start()
  reply.failure(new GatewayError('payload_too_large', 'x'))
  t.match(sent[0], { call: 'send', args: [String, Array, String, true] })
})

t.test('a stream of events is not to be buffered; one of bytes has the type of its bytes', async t => {
  const events = start()
  t.equal(events.reply.openStream('data: 1\n\n'), true)
  t.match(events.sent[0], { call: 'open', args: ['200 OK', Array, 'data: 1\n\n', false, 'events'] })
  t.equal(events.headers().get('content-type'), 'text/event-stream; charset=utf-8')
  t.equal(events.headers().get('x-accel-buffering'), 'no')
  t.equal(events.reply.ended, false)
  events.reply.writeStream('data: 2\n\n')
  events.reply.endStream('data: [DONE]\n\n')
  t.same(
    events.sent.map(({ call }) => call),
    ['open', 'write', 'end'],
  )
  t.equal(events.reply.ended, true)
  const bytes = start()
  bytes.reply.openStream(Buffer.from('a'), 'application/zip')
  t.match(bytes.sent[0], { call: 'open', args: [String, Array, Buffer, false, 'bytes'] })
  t.equal(bytes.headers().get('content-type'), 'application/zip')
  t.equal(bytes.headers().has('x-accel-buffering'), false)
})

t.test('limits are told until the answer begins, and those of a provider replace none of ours', async t => {
  const { headers, reply } = start()
  reply.setRate('requests', { limit: 60, left: 59, resetsAtMs: 61_000 } as never, 1_000)
  const own = headers
  reply.setProviderRates({ 'X-RateLimit-Limit-Requests': '9', 'X-Other': '1' })
  reply.json(200, {})
  t.not(own().get('x-ratelimit-limit-requests'), '9')
  t.equal(own().get('x-other'), '1')
  const before = own().size
  reply.setProviderRates({ 'X-Late': '1' })
  reply.setRate('requests', { limit: 1, left: 1, resetsAtMs: 1 } as never, 1)
  t.equal(own().size, before)
})

t.test('a preflight is told the methods, and 304 has no body', async t => {
  const preflight = start()
  preflight.reply.options('GET, OPTIONS')
  t.match(preflight.sent[0], { call: 'send', args: ['204 No Content', Array, '', false] })
  t.equal(preflight.headers().get('access-control-allow-methods'), 'GET, OPTIONS')
  const unchanged = start()
  unchanged.reply.notModified()
  t.match(unchanged.sent, [{ call: 'sendHead', args: ['304 Not Modified', Array, null, false] }])
})
