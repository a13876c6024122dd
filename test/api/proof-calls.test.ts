/** What a proof says of the places that got the data of an exchange. */
import t from 'tap'
import { callsOf, wishOf } from '../../src/api/proof.ts'
import type { AttemptRecord } from '../../src/exchange/exchange.ts'
import type { Endpoint } from '../../src/protocol/provider.ts'

type Own = NonNullable<AttemptRecord['credential']>

function attempt(endpoint: Partial<Endpoint>, own: Partial<Own> | null, isStarted = true): AttemptRecord {
  const credential =
    own === null
      ? null
      : { id: 'c', name: 'secret name', label: 'sk-...AbCd', declaredRegion: null, declaredZdr: null, ...own }
  return {
    endpoint: { modelId: 'm/a', provider: { name: 'P', slug: 'p' }, region: null, zdr: false, ...endpoint },
    credential,
    isStarted,
    status: 200,
  } as unknown as AttemptRecord
}

function placed(endpoint: Partial<Endpoint>, own: Partial<Own> | null) {
  const [call] = callsOf({ id: 'gen-1', attempts: [attempt(endpoint, own)] })
  return [call?.region, call?.zdr, call?.trains, call?.credential]
}

t.test('region and policy are those of the endpoint, or what the owner of the credential declares', t => {
  t.same(placed({}, null), [null, false, false, 'shared'])
  t.same(placed({ region: 'europe', zdr: true }, null), ['europe', true, false, 'shared'])
  t.same(placed({ trains: true }, null), [null, false, true, 'shared'])
  t.same(placed({ trains: true }, { declaredZdr: true }), [null, true, false, 'sk-...AbCd'])
  t.same(placed({ zdr: true, trains: true }, { declaredZdr: false }), [null, false, true, 'sk-...AbCd'])
  t.same(placed({}, { declaredRegion: 'us' }), ['us', false, false, 'sk-...AbCd'])
  t.same(placed({}, { declaredRegion: 'global' })[0], null)
  t.same(placed({ region: 'us' }, { declaredRegion: 'us' })[0], 'us')
  t.same(placed({ region: 'us' }, { declaredRegion: 'europe' })[0], null, 'the two do not agree')
  t.same(placed({ region: 'us' }, {})[0], null, 'a BYOK key of no region may lead elsewhere')
  t.end()
})

t.test('a call that was never handed to a provider is no place', t => {
  const attempts = [attempt({}, null, false), attempt({ modelId: 'm/b' }, null)]
  const calls = callsOf({ id: 'gen-1', attempts })
  t.match(calls, [{ id: 'gen-1', model: 'm/b', provider: 'P', status: 200 }])
  t.equal(calls.length, 1)
  t.notMatch(JSON.stringify(callsOf({ id: 'g', attempts: [attempt({}, {})] })), /secret name/)
  t.end()
})

t.test('the wishes are those of request and host', t => {
  const request = { model: 'm', input: 'x', provider: { zdr: true, data_collection: 'deny' as const } }
  t.same(wishOf({ dataRegion: 'europe', request }), {
    data_region: 'europe',
    zdr: true,
    data_collection: 'deny',
  })
  t.same(wishOf({ dataRegion: null, request: { model: 'm', input: 'x' } }), {
    data_region: null,
    zdr: false,
    data_collection: 'allow',
  })
  t.end()
})
