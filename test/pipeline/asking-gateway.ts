/**
 * A gateway without a front whose tools may call models: real store, limits and guardrails, and a scripted provider.
 */
import { createSecretKey, randomBytes } from 'node:crypto'
import type { Test } from 'tap'
import { systemClock } from '../../src/base/clock.ts'
import { createLog } from '../../src/base/log/log.ts'
import { toMicroUsd } from '../../src/base/money.ts'
import { keyRecord } from '../../src/callers/api-key.ts'
import { callerOf } from '../../src/callers/keys.ts'
import { type ClientRequest, Exchange } from '../../src/exchange/exchange.ts'
import { createAskAs } from '../../src/pipeline/inner-call.ts'
import { loadConfig } from '../../src/process/config/config.ts'
import { startShipper } from '../../src/process/services/ledger-shipper.ts'
import { buildGateway } from '../../src/process/wiring/gateway.ts'
import type { GuardrailRecord } from '../../src/protocol/management/guardrails.ts'
import type { ResponsesRequest } from '../../src/protocol/request.ts'
import { parseVaultKeys } from '../../src/providers/credentials/vault-keys.ts'
import { openStore } from '../../src/storage/open.ts'
import { DEFAULT_ORGANIZATION_ID } from '../../src/storage/store.ts'
import type { UsageRecord } from '../../src/storage/usage.ts'
import { giveGuardrail } from '../support/guardrail.ts'
import { newDatabase } from '../support/new-database.ts'
import { ScriptedProvider } from '../support/provider.ts'
import { scriptedContext } from '../support/scripted-attempt.ts'
import { TestClock } from '../support/test-clock.ts'

/** USD for an output token; nothing else costs. */
export const TOKEN_USD = 0.001

export async function startAsking(t: Pick<Test, 'teardown'>, limit: number | null = null) {
  const provider = new ScriptedProvider()
  const baseUrl = await provider.listen()
  const storageUrl = await newDatabase()
  const log = createLog('silent', { write: () => undefined })
  const shipper = await startShipper({ storageUrl, clock: systemClock, log })
  const store = await openStore(storageUrl)
  const key = {
    ...keyRecord(`sk-gw-v1-${randomBytes(32).toString('hex')}`, 'inference', {
      name: 'test',
      clock: systemClock,
    }),
    limit: limit === null ? null : toMicroUsd(limit),
  }
  await store.keys.add(key)
  const defaults = loadConfig([], {})
  const endpoint = { provider: 'acme', pricing: { completion: String(TOKEN_USD) } }
  const clock = new TestClock(Date.now())
  const built = await buildGateway({
    config: {
      ...defaults,
      // The second endpoint is asked only where the first may not be.
      routing: { ...defaults.routing, loadBalancing: false },
      storage: { url: storageUrl },
      threads: { serve: 1, warmUpMs: 0, tasks: 1 },
      providers: [{ slug: 'acme', name: 'Acme', format: 'openai-chat', baseUrl, apiKey: 'x' }],
      models: [
        {
          id: 'acme/side',
          name: 'Side',
          endpoints: [
            { ...endpoint, upstreamModel: 'side', trains: true },
            { ...endpoint, upstreamModel: 'kept', zdr: true },
          ],
        },
      ],
    },
    simUrl: null,
    endUserKey: createSecretKey(randomBytes(32)),
    vaultKeys: parseVaultKeys(`test:${randomBytes(32).toString('base64')}`),
    spoolFolder: shipper.folder,
    log,
    clock,
  })
  t.teardown(async () => {
    await built.close()
    await shipper.close()
    await store.close()
    await provider.close()
  })
  const outer = new AbortController()
  const caller = callerOf(key)
  const call = (request: Partial<ResponsesRequest> = {}): ClientRequest => ({
    context: scriptedContext({ id: 'gen-1-outer', signal: outer.signal }),
    caller,
    dialect: 'responses',
    request: { model: 'acme/side', input: 'Outer', ...request },
    withMetadata: false,
    dataRegion: null,
  })
  return {
    provider,
    clock,
    outer,
    caller,
    gateway: built.gateway,
    check: built.requestCheck,
    /** A request of the caller itself. */
    call,
    askAs: createAskAs(clock, () => built.gateway),
    /** The exchange for which is asked. */
    exchange: (request: Partial<ResponsesRequest> = {}) => new Exchange(call(request), 1),
    async guard(rules: Partial<GuardrailRecord>): Promise<void> {
      await giveGuardrail(store, caller.keyHash, rules)
      built.invalidate({ kind: 'guardrails', organizationId: DEFAULT_ORGANIZATION_ID })
    },
    /** Usage records so far, oldest first. */
    async records(): Promise<readonly UsageRecord[]> {
      await new Promise(resolve => setImmediate(resolve))
      await shipper.ship()
      const found = await store.ledger.latest({ organizationId: DEFAULT_ORGANIZATION_ID }, 100)
      return found.toReversed()
    },
  }
}
