/**
 * Requests that a batch service runs, in their two exchanges: one up to the model call, one with the stored reply. The
 * whole gateway of one thread without a front; the simulated provider writes the replies.
 */
import { createSecretKey, randomBytes } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { SIM_FORMATS, simModel, simProvider } from '../../src/apps/simulator/rows.ts'
import { createSim } from '../../src/apps/simulator/simulator.ts'
import { systemClock } from '../../src/base/clock.ts'
import { GatewayError } from '../../src/base/errors.ts'
import { createLog } from '../../src/base/log/log.ts'
import { Stopwatch } from '../../src/base/metrics/stages.ts'
import { FULL_PRICE } from '../../src/base/money.ts'
import { keyRecord } from '../../src/callers/api-key.ts'
import { callerOf } from '../../src/callers/keys.ts'
import type { BatchTerms, DeferredCall, Exchange, StoredReply } from '../../src/exchange/exchange.ts'
import { FinalSink } from '../../src/pipeline/answer/sink.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import type { Config } from '../../src/process/config/settings.ts'
import { buildGateway } from '../../src/process/wiring/gateway.ts'
import { createRequestParser } from '../../src/protocol/json/request-parser.ts'
import type { GuardrailRecord } from '../../src/protocol/management/guardrails.ts'
import type { Caller, Spending } from '../../src/protocol/records.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'
import { giveGuardrail } from '../support/guardrail.ts'
import { scriptedContext } from '../support/scripted-attempt.ts'
import { tempFolder } from '../support/temp-folder.ts'

const KEY = keyRecord(`sk-gw-v1-${randomBytes(32).toString('hex')}`, 'inference', {
  name: 'test',
  clock: systemClock,
})
const CALLER: Caller = callerOf(KEY)
const ORGANIZATION = KEY.organizationId
const HALF = FULL_PRICE / 2

async function start(t: Test) {
  const sim = createSim()
  const { url } = await sim.listen()
  const folder = tempFolder()
  const spoolFolder = join(folder, 'spool')
  mkdirSync(spoolFolder)
  const defaults = loadConfig([], {})
  const config: Config = {
    ...defaults,
    storage: { url: `sqlite:${join(folder, 'gateway.db')}` },
    threads: { serve: 1, warmUpMs: 0, tasks: 1 },
    alignment: { ...defaults.alignment, evaluator: { model: 'sim/judge' } },
    providers: [simProvider(url)],
    models: [
      ...SIM_FORMATS.flatMap(format => ['echo', 'json', 'judge', 'call'].map(name => simModel(name, format))),
    ],
  }
  const store = await openStore(config.storage.url)
  await store.keys.add(KEY)
  await store.close()
  const built = await buildGateway({
    config,
    simUrl: null,
    endUserKey: createSecretKey(randomBytes(32)),
    vaultKeys: parseVaultKeys(`test:${randomBytes(32).toString('base64')}`),
    log: createLog('silent', { write: () => undefined }),
    spoolFolder,
  })
  t.teardown(async () => {
    await built.close()
    await sim.close()
  })
  const parse = createRequestParser(built.offered)
  let count = 0
  async function run(
    body: Record<string, unknown>,
    batch: BatchTerms | undefined,
    more: { withMetadata?: boolean; caller?: Caller } = {},
  ) {
    const sink = new FinalSink()
    const id = `gen-1-${++count}`
    const outcome = await built.gateway.respond(
      {
        context: scriptedContext({ id, watch: new Stopwatch(systemClock.monotonicMs()) }),
        caller: more.caller ?? CALLER,
        request: parse(body),
        dialect: 'responses',
        withMetadata: more.withMetadata ?? false,
        dataRegion: null,
        batch,
      },
      sink,
    )
    return { id, outcome, response: sink.response, record: await built.ledger.find(id, ORGANIZATION) }
  }
  return {
    sim,
    run,
    /** The first exchange. */
    async submit(body: Record<string, unknown>, more: Parameters<typeof run>[2] = {}) {
      const taken: DeferredCall[] = []
      const accounted: Exchange[] = []
      const terms: BatchTerms = {
        priceFactor: FULL_PRICE,
        accounts: ({ exchange }) => {
          accounted.push(exchange)
          return true
        },
        submit(call) {
          taken.push(call)
          return true
        },
      }
      const ended = await run(body, terms, more)
      return { ...ended, call: taken[0], taken: taken.length, accounted: accounted.length }
    },
    /** What the provider answers to a call, as a batch service would store it. */
    async replyTo({ wire }: DeferredCall): Promise<StoredReply> {
      const reply = await fetch(`${url}${wire.path}`, {
        method: 'POST',
        headers: { 'x-api-key': 'k', ...wire.headers },
        body: JSON.stringify(wire.body),
      })
      return { status: reply.status, body: await reply.text() }
    },
    /** The second exchange. */
    async collect(
      body: Record<string, unknown>,
      { attempt }: DeferredCall,
      reply: StoredReply,
      more: Parameters<typeof run>[2] = {},
    ) {
      const settled: Spending[] = []
      const terms: BatchTerms = {
        priceFactor: HALF,
        accounts: () => true,
        collected: {
          candidate: attempt,
          providerKey: null,
          reservation: { allowance: null, settle: spent => void settled.push(spent) },
          reply,
        },
      }
      return { ...(await run(body, terms, more)), settled }
    },
    async guard(rules: Partial<GuardrailRecord>) {
      const record = await giveGuardrail(built.store, KEY.hash, rules)
      built.invalidate({ kind: 'guardrails', organizationId: ORGANIZATION })
      return record
    },
  }
}

/** Without what differs between two exchanges of one request. */
function comparable(response: unknown): unknown {
  return JSON.parse(JSON.stringify(response), (key, value) =>
    key === 'id' || key === 'created_at' || key === 'completed_at' || key === 'cost' ? undefined : value,
  )
}

t.test('a stored reply becomes the answer that the provider itself would have given', async t => {
  const s = await start(t)
  for (const prefix of ['', 'chat-', 'messages-', 'gemini-']) {
    const body = { model: `sim/${prefix}echo`, input: 'Say this again, please', max_output_tokens: 300 }
    const { call, outcome, record, accounted, taken } = await s.submit(body)
    t.match(outcome, { answered: false })
    t.equal(taken, 1)
    t.equal(accounted, 0, 'an exchange that is not over is not accounted')
    t.equal(record, null, 'and leaves no usage record')
    if (call === undefined) throw new Error('not deferred')
    const asked = s.sim.state.requests
    const stored = await s.replyTo(call)
    const collected = await s.collect(body, call, stored)
    t.equal(s.sim.state.requests, asked + 1, 'nobody is asked again')
    const live = await s.run(body, undefined)
    t.same(comparable(collected.response), comparable(live.response), prefix)
    t.equal((collected.response?.usage?.cost ?? 0) * 2, live.response?.usage?.cost, 'at half of the price')
    t.match(collected.record, { outcome: 'completed', accounting: 'exact', provider: 'sim', isByok: false })
    t.equal((collected.record?.cost ?? 0) * 2, live.record?.cost)
    t.same(
      collected.settled,
      [
        {
          cost: collected.record?.cost,
          isByok: false,
          tokens: (live.record?.inputTokens ?? 0) + (live.record?.outputTokens ?? 0),
        },
      ],
      'limits count what it came to',
    )
  }
})

t.test('an error that the service stored fails the request as it would have failed', async t => {
  const s = await start(t)
  const body = { model: 'sim/chat-echo', input: 'Hi' }
  const { call } = await s.submit(body)
  if (call === undefined) throw new Error('not deferred')
  const error = { error: { message: 'Too many words', code: 'context_length_exceeded' } }
  const asked = s.sim.state.requests
  const failed = await s.collect(body, call, { status: 400, body: JSON.stringify(error) })
  t.match(failed.outcome, { answered: false, error: { code: 'context_length_exceeded' } })
  t.match(failed.record, { outcome: 'failed', accounting: 'none', cost: 0, error: 'context_length_exceeded' })
  const expired = new GatewayError('deadline_exceeded', 'Too late')
  const unrun = await s.collect(body, call, { error: expired })
  t.match(unrun.outcome, { answered: false, error: { code: 'deadline_exceeded', message: 'Too late' } })
  t.match(unrun.record, { outcome: 'failed', accounting: 'none', cost: 0 })
  const overloaded = await s.collect(body, call, { status: 529, body: '{"error":"busy"}' })
  t.match(overloaded.outcome, { answered: false, error: { code: 'upstream_overloaded' } })
  for (const broken of ['', 'null', '{"choices":', '[]', '{}', '"text"', `${'['.repeat(5000)}`]) {
    const ended = await s.collect(body, call, { status: 200, body: broken })
    const code = broken.startsWith('[[') ? 'reply_too_large' : 'provider_unavailable'
    t.match(ended.outcome, { answered: false, error: { code } }, broken.slice(0, 20))
  }
  t.equal(s.sim.state.requests, asked, 'nobody is asked instead')
})

const EMAILS = { slug: 'email', action: 'redact', scanScope: 'all_messages' } as const

t.test('guardrails look at the request before it is submitted, and at the reply when it comes', async t => {
  const s = await start(t)
  await s.guard({
    contentFilters: [{ pattern: 'forbidden', action: 'block', label: null }],
    contentFilterBuiltins: [EMAILS],
  })
  const blocked = await s.submit({ model: 'sim/chat-echo', input: 'a forbidden thing' })
  t.match(blocked.outcome, { answered: false, error: { code: 'permission_denied' } })
  t.equal(blocked.taken, 0)
  t.match(blocked.record, { outcome: 'failed', accounting: 'none' })
  const body = { model: 'sim/chat-echo', input: 'Write to jane@example.com' }
  const { call } = await s.submit(body)
  if (call === undefined) throw new Error('not deferred')
  t.match(JSON.stringify(call.wire.body), 'Write to [EMAIL]')
  t.notMatch(JSON.stringify(call.wire.body), 'jane@example.com')
  const stored = await s.replyTo(call)
  t.match(JSON.stringify((await s.collect(body, call, stored)).response?.output), 'Write to [EMAIL]')
  // Somebody has tightened the rules meanwhile: those for replies hold, and what the provider said is charged.
  const output = { contentFilterBuiltins: [], windowBytes: 1024, overlapBytes: 64 }
  await s.guard({
    contentFilters: [{ pattern: 'Write', action: 'block', label: null }],
    output: { ...output, contentFilters: [{ pattern: 'Write to', action: 'redact', label: 'GONE' }] },
  })
  const redacted = await s.collect(body, call, stored)
  t.match(JSON.stringify(redacted.response?.output), '[REDACTED]')
  t.notMatch(JSON.stringify(redacted.response?.output), 'Write to')
  await s.guard({
    output: { ...output, contentFilters: [{ pattern: 'Write to', action: 'block', label: null }] },
  })
  const refused = await s.collect(body, call, stored)
  t.match(refused.outcome, { answered: false, error: { code: 'permission_denied' } })
  t.ok((refused.record?.cost ?? 0) > 0, 'the provider bills it all the same')
})

t.test('the gateway itself runs what a service cannot run alone', async t => {
  const s = await start(t)
  const rules = ['Never say "boo"']
  const cases: [string, Record<string, unknown>, { withMetadata?: boolean }?][] = [
    ['a server tool', { tools: [{ type: 'gateway:datetime' }] }],
    ['a plugin that asks another model', { plugins: [{ id: 'alignment', rules }] }],
    ['a stream', { stream: true }],
  ]
  for (const [what, fields] of cases) {
    const ended = await s.submit({ model: 'sim/chat-echo', input: 'Hello', ...fields })
    t.equal(ended.taken, 0, what)
    t.match(ended.outcome, { answered: true }, what)
    t.equal(ended.accounted, 1, what)
  }
  const { id } = await s.guard({
    contentFilterBuiltins: [{ ...EMAILS, action: 'flag' }],
  })
  const body = { model: 'sim/chat-echo', input: 'Write to jane@example.com' }
  const told = await s.submit(body, { withMetadata: true })
  t.equal(told.taken, 0, 'what was found in the request is told with its reply')
  t.match(told.response?.gateway_metadata, { pipeline: [{ guardrail_id: id }] })
  t.equal((await s.submit(body)).taken, 1, 'nobody asks for it here')
  t.equal(
    (await s.submit({ ...body, input: 'Hi' }, { withMetadata: true })).taken,
    1,
    'nothing was found here',
  )
})

t.test('plugins that need nothing but the reply work on a stored one', async t => {
  const s = await start(t)
  const schema = {
    type: 'object',
    properties: { a: { type: 'number' } },
    required: ['a'],
    additionalProperties: false,
  }
  const body = {
    model: 'sim/chat-echo',
    input: 'Hi',
    text: { format: { type: 'json_schema', name: 'n', schema } },
    plugins: [{ id: 'response-healing' }],
  }
  const { call } = await s.submit(body)
  if (call === undefined) throw new Error('not deferred')
  const choice = {
    index: 0,
    finish_reason: 'stop',
    message: { role: 'assistant', content: '```json\n{"a":1,}\n```' },
  }
  const stored = {
    status: 200,
    body: JSON.stringify({ id: 'x', choices: [choice], usage: { prompt_tokens: 3, completion_tokens: 4 } }),
  }
  const healed = await s.collect(body, call, stored)
  t.match(healed.response?.output, [{ content: [{ text: '{"a":1}' }] }])
})

t.test('the reservation of a deferred request goes with its call', async t => {
  const s = await start(t)
  const caller: Caller = { ...CALLER, limit: { amount: 600_000, reset: null, includeByok: false } }
  const body = { model: 'sim/chat-echo', input: 'Hi', max_output_tokens: 900_000 }
  const { call } = await s.submit(body, { caller })
  if (call === undefined) throw new Error('not deferred')
  t.ok(call.reservedAmount >= 0.36e12, 'for all that it may write')
  t.equal(call.attempt.endpoint.modelId, 'sim/chat-echo')
  const second = await s.submit(body, { caller })
  t.match(second.outcome, { answered: false, error: { code: 'rate_limit_exceeded' } }, 'it is still reserved')
  call.exchange.reservation?.settle({ cost: 0, isByok: false, tokens: 0 })
  t.equal((await s.submit(body, { caller })).taken, 1)
})
