/** What an exchange is charged for when it ends before its reply did. */
import t from 'tap'
import { systemClock } from '../../../src/base/clock.ts'
import { type FailureCode, GatewayError } from '../../../src/base/errors.ts'
import { createLog } from '../../../src/base/log/log.ts'
import { createMetrics } from '../../../src/base/metrics/metrics.ts'
import { Stopwatch } from '../../../src/base/metrics/stages.ts'
import { UNLIMITED_RESERVATION } from '../../../src/callers/limits/quota.ts'
import { type AttemptRecord, endOf } from '../../../src/exchange/exchange.ts'
import { account } from '../../../src/pipeline/accounting/account.ts'
import { type CallFigures, settle } from '../../../src/pipeline/accounting/charge.ts'
import { FinalSink } from '../../../src/pipeline/answer/sink.ts'
import { prepareGuardrail } from '../../../src/pipeline/guard/guard.ts'
import { NO_PLUGINS } from '../../../src/pipeline/plugin-chain.ts'
import { createGateway } from '../../../src/pipeline/respond.ts'
import { createCatalog } from '../../../src/providers/catalog.ts'
import { NO_CREDENTIALS } from '../../../src/providers/credentials/catalog.ts'
import { createDirectTransport } from '../../../src/providers/upstream/client/direct-transport.ts'
import { defaultGuardrail } from '../../../src/storage/guardrails.ts'
import type { UsageRecord } from '../../../src/storage/usage.ts'
import { ScriptedProvider } from '../../support/provider.ts'
import { scriptedContext, scriptedExchange, scriptedRecord } from '../../support/scripted-attempt.ts'
import { failing, LONG, outputOf } from '../guard/output-guard.ts'
import { plainCalls } from '../routing.ts'

const SILENT: CallFigures = {
  usage: null,
  finish: null,
  outputQuarters: 0,
  isThoughtSeen: false,
  sentBytes: 500,
  isCut: false,
  isStalled: false,
  wasPaused: false,
  pieceQuarters: 0,
}

const NO_USAGE = {
  inputTokens: 0,
  cachedTokens: 0,
  cacheWriteTokens: 0,
  outputTokens: 0,
  reasoningTokens: 0,
  webSearchRequests: 0,
}

function failed(code: FailureCode, status: number | null, isRefused = false): AttemptRecord {
  return scriptedRecord({ status, error: new GatewayError(code, 'no'), isRefused })
}

t.test('what a guardrail stopped was read at least, whether a word of it was said or not', async t => {
  for (const code of ['permission_denied', 'content_policy_violation', 'guardrail_unavailable'] as const) {
    const exchange = scriptedExchange({ input: 'x'.repeat(400) })
    settle(exchange, failed(code, 200, true), SILENT)
    t.match(exchange.bill, {
      accounting: 'estimated',
      total: { usage: { inputTokens: 100, outputTokens: 0 }, cost: 100 },
      cost: 100,
    })
    const unasked = scriptedExchange()
    settle(unasked, failed(code, null), SILENT)
    t.match(unasked.bill, { accounting: 'none', total: null, cost: null }, 'nobody was asked')
  }
  const broken = scriptedExchange()
  settle(broken, failed('provider_unavailable', 200), SILENT)
  t.match(broken.bill, { accounting: 'none', total: null, cost: null })
})

t.test('a reply that guardrails could not look at is charged for, although it is withheld', async t => {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  provider.script('model', [{ text: 'word '.repeat(80), tokens: { input: 7, output: 90 } }])
  const log = createLog('silent', { write: () => undefined })
  const client = createDirectTransport({ clock: systemClock, log })
  t.teardown(async () => {
    await client.close()
    await provider.close()
  })
  const guardrail = {
    ...defaultGuardrail({ organizationId: 'o', id: 'w', createdAt: '2026-01-01T00:00:00.000Z' }),
    output: outputOf('block', { contentFilters: LONG }),
    failMode: 'closed' as const,
  }
  const rules = prepareGuardrail([{ scope: 'workspace', guardrail }])?.output
  if (rules == null) throw new Error('there are no rules')
  const metrics = createMetrics()
  const records: UsageRecord[] = []
  const pricing = { prompt: '1', completion: '1' }
  const gateway = createGateway({
    catalog: createCatalog({
      providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
      models: [
        { id: 'acme/model', name: 'M', endpoints: [{ provider: 'acme', upstreamModel: 'model', pricing }] },
      ],
      onAbort: 'cancel',
    }),
    ...plainCalls(systemClock, records),
    client,
    clock: systemClock,
    log,
    metrics,
    credentials: { of: () => NO_CREDENTIALS },
    quota: { limits: () => false, limitsMoney: () => false, admit: () => UNLIMITED_RESERVATION },
    plugins: NO_PLUGINS,
    tools: new Map(),
    toolPermissions: { disabledFor: () => new Set() },
    guard: {
      request: () => ({
        revision: '',
        restrictions: null,
        input: null,
        reply: { rules, tasks: failing('overloaded'), metrics },
      }),
      storedReply: () => null,
      restrictions: () => null,
    },
  })
  const outcome = await gateway.respond(
    {
      context: scriptedContext({ watch: new Stopwatch(systemClock.monotonicMs()) }),
      caller: { keyHash: 'k', organizationId: 'o', workspaceId: 'w', memberId: null, limit: null },
      request: { model: 'acme/model', input: 'Hi' },
      dialect: 'responses',
      withMetadata: false,
      dataRegion: null,
    },
    new FinalSink(),
  )
  t.match(outcome, {
    answered: false,
    error: { code: 'guardrail_unavailable' },
    charged: { usage: { input_tokens: 7, output_tokens: 100 } },
  })
  t.match(records, [
    { outcome: 'failed', error: 'guardrail_unavailable', accounting: 'estimated', inputTokens: 7 },
  ])
})

t.test('of a reply that was cut short here, what was said counts beside what was reported', async t => {
  const usage = { ...NO_USAGE, inputTokens: 30, outputTokens: 5 }
  const finish = { reason: 'length' as const, native: null, serviceTier: null }
  const figures = { ...SILENT, usage, finish, outputQuarters: 400 }
  const whole = scriptedExchange()
  settle(whole, scriptedRecord(), figures)
  t.match(whole.bill, { accounting: 'exact', total: { usage: { inputTokens: 30, outputTokens: 5 } } })
  const cut = scriptedExchange()
  settle(cut, scriptedRecord(), { ...figures, isCut: true })
  t.match(cut.bill, { accounting: 'estimated', total: { usage: { inputTokens: 30, outputTokens: 100 } } })
})

t.test('fees of tools on a BYOK credential have a record of their own, and count against every limit', t => {
  for (const isByok of [true, false]) {
    const exchange = scriptedExchange()
    const attempt = scriptedRecord({ isByok })
    exchange.attempts.push(attempt)
    const usage = { ...NO_USAGE, inputTokens: 30, outputTokens: 5 }
    const finish = { reason: 'stop' as const, native: null, serviceTier: null }
    settle(exchange, attempt, { ...SILENT, usage, finish })
    const model = exchange.bill.cost ?? 0
    exchange.bill.closeTurn()
    exchange.bill.addToolCall(true, 7_000, 1)
    const records: UsageRecord[] = []
    const settled: unknown[] = []
    exchange.reservation = { allowance: null, settle: spent => void settled.push(spent) }
    const ledger = {
      append: (record: UsageRecord) => void records.push(record),
      whenWritten: () => null,
      find: async () => null,
    }
    account({ metrics: createMetrics(), ledger }, endOf(exchange, null, 5))
    const expected = isByok
      ? [
          { id: exchange.id, cost: model, isByok: true },
          { id: `${exchange.id}-fees`, parent: exchange.id, cost: 7_000, isByok: false, inputTokens: 0 },
        ]
      : [{ id: exchange.id, cost: model + 7_000, isByok: false }]
    t.match(records, expected)
    t.equal(records.length, expected.length)
    t.match(settled, [
      isByok ? { cost: model, isByok, fees: 7_000 } : { cost: model + 7_000, isByok, fees: undefined },
    ])
  }
  t.end()
})
