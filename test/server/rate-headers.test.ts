/** A limit per minute is told in the headers that the clients of each dialect read. */
import t from 'tap'
import type { Handler, Operation } from '../../src/api/operation.ts'
import { chatCompletions, messages, responsesDialect } from '../support/dialects.ts'
import { exchange, request } from '../support/raw-http.ts'
import { TestClock } from '../support/test-clock.ts'
import { INFERENCE, operation, startFrontEnd } from './front-end.ts'

const greet: Handler = (_, reply) => reply.json(200, { greeting: 'hello' })
const NOW = Date.parse('2026-03-11T12:00:15.500Z')
const ROOM = { limit: 10, remaining: 2, resetMs: Date.parse('2026-03-11T12:06:15.600Z') }

function speaking(path: string, dialect: Operation['dialect']): Operation {
  const row = { method: 'GET' as const, path, bodyLimitBytes: 0, key: 'inference' as const, handler: greet }
  return { ...operation(row), dialect } as Operation
}

t.test('what is left of a limit stands on each answer, in the words of its clients', async t => {
  for (const isLater of [false, true]) {
    const enter = () => (isLater ? Promise.resolve(ROOM) : ROOM)
    const front = await startFrontEnd(t, [], {
      clock: new TestClock(NOW),
      rate: { limitsAll: true, enter, refuse: () => undefined },
      operations: [
        speaking('/responses', responsesDialect),
        speaking('/chat/completions', chatCompletions),
        speaking('/messages', messages),
      ],
    })
    const headers = async (path: string) =>
      Object.fromEntries(
        (await exchange(front.port, request('GET', path, { Authorization: INFERENCE })))?.headers ?? [],
      )
    const usual = {
      'x-ratelimit-limit-requests': '10',
      'x-ratelimit-remaining-requests': '2',
      'x-ratelimit-reset-requests': '6m1s',
    }
    t.match(await headers('/v1/responses'), usual)
    t.match(await headers('/v1/chat/completions'), usual)
    const own = await headers('/v1/messages')
    t.match(own, {
      'anthropic-ratelimit-requests-limit': '10',
      'anthropic-ratelimit-requests-remaining': '2',
      'anthropic-ratelimit-requests-reset': '2026-03-11T12:06:15.600Z',
    })
    t.notOk(Object.keys(own).some(name => name.startsWith('x-ratelimit')))
  }
})

t.test('without a limit nothing is told of one', async t => {
  const front = await startFrontEnd(t, [], { operations: [speaking('/messages', messages)] })
  const reply = await exchange(front.port, request('GET', '/v1/messages', { Authorization: INFERENCE }))
  t.equal(reply?.status, 200)
  t.notOk([...(reply?.headers.keys() ?? [])].some(name => name.includes('ratelimit-')))
})
