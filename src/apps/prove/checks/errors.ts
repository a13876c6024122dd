/** Checks of error replies: their status and the shape of their body. */
import {
  BASIS,
  BOTH,
  byStatus,
  type Check,
  type CheckRow,
  checksOf,
  fail,
  faultless,
  pass,
  statusOf,
} from '../check.ts'
import type { Dialect } from '../dialects.ts'
import { UNKNOWN_KEY, UNKNOWN_MODEL } from '../provider.ts'
import { shapeFaults } from '../shape.ts'
import { objectOf } from '../sse.ts'
import type { AskOptions, ProbeAnswer, Tester } from '../tester.ts'

interface Refusal {
  readonly name: string
  readonly asserts: string
  readonly matters: string
  options(dialect: Dialect): AskOptions
  /** The correct statuses. */
  readonly statuses: readonly number[]
}

const INVALID_STATUSES = [400, 422] as const

/** Requests that must be refused before a model is called. */
const REFUSALS: readonly Refusal[] = [
  {
    name: 'bad-json',
    asserts: 'a body that is not JSON is refused with 400',
    matters: 'callers have to learn that the mistake is their own, and that a retry does not help',
    options: () => ({ text: '{"model": "x", ' }),
    statuses: INVALID_STATUSES,
  },
  {
    name: 'empty-body',
    asserts: 'an empty object is refused with 400 (or 422)',
    matters: 'callers have to learn that the mistake is their own, and that a retry does not help',
    options: () => ({ text: '{}' }),
    statuses: INVALID_STATUSES,
  },
  {
    name: 'wrong-type',
    asserts: 'a field of the wrong type is refused with 400 (or 422)',
    matters: 'a mistake that passes here fails later, at the provider, and costs money',
    options: ({ name }) => ({ body: name === 'chat' ? { messages: 7 } : { input: 7 } }),
    statuses: INVALID_STATUSES,
  },
  {
    name: 'unknown-model',
    asserts: 'a model that does not exist is refused with 404 (or 400)',
    matters: 'clients use the status to tell a typing error from an outage',
    options: () => ({ body: { model: UNKNOWN_MODEL } }),
    statuses: [404, 400],
  },
  {
    name: 'unknown-model-stream',
    asserts: 'a stream that cannot begin is refused with an error status, not with an event after 200',
    matters: 'clients recognize failures before a stream by the status',
    options: () => ({ body: { model: UNKNOWN_MODEL }, stream: true }),
    statuses: [404, 400],
  },
  {
    name: 'missing-key',
    asserts: 'a request without a key is refused with 401',
    matters: 'clients ask for a key on 401, and retry on 5xx',
    options: () => ({ key: null }),
    statuses: [401],
  },
  {
    name: 'wrong-key',
    asserts: 'an unknown key is refused with 401',
    matters: "nobody may spend other people's money with a wrong key",
    options: () => ({ key: UNKNOWN_KEY }),
    statuses: [401],
  },
]

function sendRefusal(tester: Tester, dialect: Dialect, { name, options }: Refusal): Promise<ProbeAnswer> {
  return tester.sample(dialect, name, options(dialect))
}

const COMMON = { group: 'conformance', dialects: BOTH, basis: BASIS.api, sends: 1 } as const

export const ERROR_CHECKS: readonly Check[] = checksOf('errors', COMMON, [
  ...REFUSALS.map(
    (refusal): CheckRow => ({
      name: refusal.name,
      asserts: refusal.asserts,
      matters: refusal.matters,
      async run(tester, dialect) {
        const answer = await sendRefusal(tester, dialect, refusal)
        return refusal.statuses.includes(answer.reply.status)
          ? pass(statusOf(answer))
          : fail(statusOf(answer))
      },
    }),
  ),
  {
    name: 'envelope',
    asserts: 'the body of each refusal is JSON with error.message, and with error.type or error.code',
    matters: 'SDKs show error.message; without it people see "no body"',
    sends: 0,
    async run(tester, dialect) {
      for (const refusal of REFUSALS) {
        const answer = await sendRefusal(tester, dialect, refusal)
        const faults = envelopeFaults(answer)
        if (faults.length > 0)
          return faultless(
            faults.map(fault => `${refusal.name}: ${fault}`),
            '',
          )
      }
      return pass(`${REFUSALS.length} refusals`)
    },
  },
  {
    name: 'disclosure',
    asserts: "refusals show no complete key, and none of the server's paths or stack traces",
    matters: "error messages end up in other people's logs",
    basis: 'OWASP, improper error handling',
    weight: 'should',
    sends: 0,
    async run(tester, dialect) {
      for (const refusal of REFUSALS) {
        const answer = await sendRefusal(tester, dialect, refusal)
        const { text } = answer.reply
        if (text.includes(UNKNOWN_KEY) || text.includes(tester.deps.target.key))
          return fail(`${refusal.name}: the key is sent back`)
        if (/node_modules\/|\bat [\w.<>]+ \(?(?:file:|\/)|Traceback \(most recent/.test(text))
          return fail(`${refusal.name}: a stack trace of the server is shown`)
      }
      return pass(`${REFUSALS.length} refusals`)
    },
  },
  {
    name: 'wrong-method',
    asserts: 'GET on the path is refused with 405 and Allow, or with 404',
    matters: 'monitors and crawlers must not look like outages',
    basis: BASIS.http,
    async run(tester, dialect) {
      const reply = await tester.request('GET', dialect.path, null)
      const allow = reply.headers.get('allow')
      if (reply.status === 405)
        return allow === undefined ? fail('405 without Allow') : pass(`405, Allow: ${allow}`)
      return byStatus(reply, [404, 400, 401, 426].includes(reply.status))
    },
  },
  {
    name: 'unknown-path',
    dialects: null,
    asserts: 'a path that does not exist is refused with 404',
    matters: 'a wrong base URL must not look like an outage or an empty answer',
    basis: BASIS.http,
    async run(tester) {
      const reply = await tester.request('POST', '/prove-no-such-path', '{}')
      return byStatus(reply, reply.status === 404 || reply.status === 405)
    },
  },
  {
    name: 'oversized',
    asserts: 'a body announced as one tebibyte is refused before it is sent',
    matters: 'one client could take the memory, or a connection, that all others need',
    basis: `${BASIS.http}, 413`,
    weight: 'should',
    async run(tester, dialect) {
      const connection = await tester.open()
      const head = `${tester.head('POST', dialect.path)}Content-Length: 1099511627776\r\n\r\n`
      tester.sendRaw(connection, `${head}{"model": "x", "input": "${'x'.repeat(64)}`, 1)
      const reply = await connection.read({ silenceMs: REFUSAL_WAIT_MS })
      if (reply === null)
        return connection.isClosed ? pass('the connection was closed') : fail('it kept waiting for the body')
      return byStatus(reply, reply.status >= 400 && reply.status < 500)
    },
  },
])

const REFUSAL_WAIT_MS = 5_000

function envelopeFaults({ reply }: ProbeAnswer): readonly string[] {
  const type = reply.headers.get('content-type') ?? 'none'
  const document = objectOf(reply.text)
  if (document === undefined) return [`the body is not JSON (${type})`]
  const error = (document as { error?: Record<string, unknown> }).error
  return [
    ...(/^application\/(?:[\w.-]+\+)?json\b/i.test(type) ? [] : [`Content-Type is ${type}`]),
    ...shapeFaults(document, [
      ['error', 'object'],
      ['error.message', 'text'],
    ]),
    ...(error !== undefined && error['type'] === undefined && error['code'] === undefined
      ? ['error has neither type nor code']
      : []),
  ]
}
