import t from 'tap'
import { type AttemptRecord, type Exchange, UNCOUNTED } from '../../../src/exchange/exchange.ts'
import { FORMATS } from '../../../src/formats/table.ts'
import { ProviderRequests } from '../../../src/pipeline/turn/provider-request.ts'
import type { ResponsesRequest } from '../../../src/protocol/request.ts'
import { credentialOf } from '../../support/own-keys.ts'
import { scriptedEndpoint, scriptedRecord } from '../../support/scripted-attempt.ts'

const requests = new ProviderRequests({
  timeouts: { upstreamHeadersMs: 1_000, upstreamIdleMs: 1_000 },
  hashEndUser: () => 'x',
  hashCacheKey: () => 'k',
})

/** The tier that the provider is asked for. */
function sentTier(
  asked: ResponsesRequest['service_tier'],
  serviceTier?: 'default' | 'flex' | 'priority' | 'ultrafast',
  isOwn = false,
): unknown {
  const prompt: ResponsesRequest = { input: 'hi', ...(asked === undefined ? {} : { service_tier: asked }) }
  const plain = scriptedEndpoint('openai-chat')
  const record: AttemptRecord = {
    ...scriptedRecord(),
    endpoint: serviceTier === undefined ? plain : { ...plain, serviceTier },
    credential: isOwn ? credentialOf('acme') : null,
  }
  const exchange = {
    clientRequest: {},
    request: prompt,
    dialect: 'responses',
    prefix: null,
    held: UNCOUNTED,
  } as unknown as Exchange
  const { body } = requests.encode(exchange, record, FORMATS['openai-chat'], prompt)
  return (body as { service_tier?: unknown }).service_tier
}

t.test('a provider serves in the tier whose prices are charged', async t => {
  t.equal(sentTier(undefined, 'priority'), 'priority', 'named by its slug or a variant')
  t.equal(sentTier('auto', 'flex'), 'flex')
  t.equal(sentTier('ultrafast', 'priority'), 'priority', 'the next best')
  t.equal(sentTier('priority', 'default'), 'default', 'the rest, after the tier has failed')
  for (const tier of ['auto', 'default', 'priority', 'fast', 'ultrafast', 'flex', 'scale'] as const)
    t.equal(sentTier(tier), undefined, `${tier} at an endpoint of no tier`)
  t.equal(sentTier(undefined), undefined)
  t.equal(sentTier('priority', undefined, true), 'priority', 'whoever pays the provider chooses')
})
