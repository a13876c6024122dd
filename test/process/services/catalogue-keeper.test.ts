/** The catalogue of the process: the Store, real lists of the simulated provider, and faults of either. */
import t, { type Test } from 'tap'
import { createSim } from '../../../src/apps/simulator/simulator.ts'
import type { SimTold } from '../../../src/apps/simulator/speak-models.ts'
import { systemClock } from '../../../src/base/clock.ts'
import { loadConfig } from '../../../src/process/config/config.ts'
import type { Config } from '../../../src/process/config/settings.ts'
import {
  CatalogueKeeper,
  IMPORT_SOURCE,
  providerSource,
  sourceOf,
} from '../../../src/process/services/catalogue-keeper.ts'
import { CATALOG_READING } from '../../../src/process/wiring/catalog.ts'
import type { KnownModel } from '../../../src/providers/known-models.ts'
import { type PackedCatalogue, unpackCatalogue } from '../../../src/providers/shared-catalogue.ts'
import { createTransports } from '../../../src/providers/upstream/egress.ts'
import { openStore } from '../../../src/storage/open.ts'
import { awayError, failingStore } from '../../support/failing-store.ts'
import { eventually } from '../../support/stream-probe.ts'

const nothing = (): void => undefined
const SILENT = { exchange: nothing, listening: nothing, notice: nothing, fault: nothing }
const told = (id: string): SimTold => ({ id, prices: null, contextLength: null })

async function world(t: Test, settings: Record<string, unknown> = {}) {
  const models = { now: [told('echo')] as readonly SimTold[] }
  const sim = createSim({ models: () => models.now })
  const { url } = await sim.listen()
  const store = await openStore('sqlite::memory:')
  t.teardown(async () => {
    await sim.close()
    await store.close()
  })
  const notices: string[] = []
  const packed: PackedCatalogue[] = []
  const config = (more: Record<string, unknown> = {}): Config => {
    const text = {
      simulator: { enabled: false },
      providers: [{ slug: 'acme', format: 'openai-chat', baseUrl: url, apiKey: 'key-of-acme' }],
      catalogue: { refreshMs: 1_000 },
      ...settings,
      ...more,
    }
    const folder = t.testdir({ 'gateway.yaml': JSON.stringify(text) })
    return loadConfig(['--config', `${folder}/gateway.yaml`], {})
  }
  const keeper = (used: Pick<typeof store, 'catalogue'> = store): CatalogueKeeper => {
    const made = new CatalogueKeeper({
      reading: CATALOG_READING,
      config: config(),
      simUrl: null,
      store: used,
      createClient: () =>
        createTransports({
          clock: systemClock,
          log: SILENT,
          proxies: { https: null, http: null, exceptions: null },
        }),
      clock: systemClock,
      log: { notice: (_, message, fields) => void notices.push(`${message} ${JSON.stringify(fields)}`) },
      onChange: next => void packed.push(next),
    })
    t.teardown(() => made.close())
    return made
  }
  return { sim, store, models, notices, packed, config, keeper }
}

const ids = (packed: PackedCatalogue): string[] => unpackCatalogue(packed).parts.models.map(({ id }) => id)

t.test('a list is kept in the store, and read from there where its provider is away', async t => {
  const { sim, store, notices, keeper } = await world(t)
  const first = keeper()
  await first.start()
  t.same(ids(first.packed), ['acme/echo'])
  t.match(await store.catalogue.list(), [{ source: 'provider:acme', models: 1 }])
  await sim.close()
  const second = keeper()
  await second.start()
  t.same(ids(second.packed), ['acme/echo'])
  t.ok(await eventually(async () => notices.length > 0, 10_000))
  t.match(
    notices[0],
    /^cannot list the models of a provider; still using its last list .*"acme".*connection_refused/,
  )
  t.notMatch(notices.join(), 'key-of-acme')
})

t.test('a list that is empty or none at all does not take models away, and is told once', async t => {
  const { models, notices, packed, keeper } = await world(t)
  const kept = keeper()
  await kept.start()
  models.now = []
  t.ok(await eventually(async () => notices.length > 0, 10_000))
  t.match(notices[0], /its list of models is empty/)
  t.same(ids(kept.packed), ['acme/echo'])
  models.now = [told('echo'), told('echo-2')]
  t.ok(await eventually(async () => packed.some(each => ids(each).includes('acme/echo-2')), 10_000))
  t.equal(notices.length, 2)
  t.match(notices[1], /listing the models of a provider again/)
})

t.test('without the store lists are there all the same', async t => {
  const { store, keeper } = await world(t)
  const kept = keeper(failingStore(store, () => ({ error: awayError(), tookEffect: false })).store)
  await kept.start()
  t.same(ids(kept.packed), ['acme/echo'])
})

t.test('what another process puts into the store is taken, and what it removes is let go', async t => {
  const { store, packed, keeper } = await world(t, { catalogue: { discover: false } })
  const kept = keeper()
  await kept.start()
  t.same(ids(kept.packed), [])
  const imported: KnownModel[] = [{ id: 'acme/one' }]
  await store.catalogue.put(sourceOf(IMPORT_SOURCE, imported, systemClock))
  await store.catalogue.put(sourceOf(providerSource('acme'), [{ id: 'old' }], systemClock))
  await kept.refresh()
  t.same(ids(kept.packed), ['acme/one'], 'lists of providers count only where they are asked')
  const before = packed.length
  await kept.refresh()
  t.equal(packed.length, before, 'what has not changed is not told')
  await store.catalogue.put({
    ...sourceOf(IMPORT_SOURCE, [], systemClock),
    facts: '{"from":"a later version"}',
  })
  await kept.refresh()
  t.same(ids(kept.packed), ['acme/one'])
  await store.catalogue.remove(IMPORT_SOURCE)
  await kept.refresh()
  t.same(ids(kept.packed), [])
})

t.test('another configuration is taken whole, or not at all', async t => {
  const { config, packed, keeper } = await world(t, { catalogue: { discover: false } })
  const kept = keeper()
  await kept.start()
  const model = (provider: string) => ({
    id: 'acme/own',
    aliases: ['acme/latest'],
    endpoints: [{ provider }],
  })
  kept.reconfigure(config({ models: [model('acme')], defaultModel: 'acme/latest' }))
  t.same(ids(kept.packed), ['acme/own'])
  t.equal(kept.packed.defaultModel, 'acme/latest')
  const { length } = packed
  t.throws(
    () => kept.reconfigure(config({ models: [model('nobody')] })),
    /^models\[0\]\.endpoints\[0\]\.provider: /,
  )
  t.throws(
    () => kept.reconfigure(config({ defaultModel: 'acme/none' })),
    /^defaultModel: there is no such model/,
  )
  t.throws(
    () => kept.reconfigure(config({ catalogue: { import: '/nowhere/models.json' } })),
    /^catalogue\.import: \/nowhere\/models\.json cannot be read \(ENOENT\)/,
  )
  t.same(ids(kept.packed), ['acme/own'])
  t.equal(packed.length, length)
})

t.test('what the file names and nobody serves is told once the lists are read', async t => {
  const targets = [{ model: 'acme/echo' }, { model: 'acme/gone', weight: 0 }]
  const { store, notices, keeper } = await world(t, {
    routes: [{ name: 'prod/chat', targets, fallback: ['acme/echo-2'] }],
  })
  const imported = [{ id: 'none/such' }, { id: 'acme/echo' }] as unknown as readonly KnownModel[]
  await store.catalogue.put(sourceOf(IMPORT_SOURCE, imported, systemClock))
  await keeper().start()
  t.ok(await eventually(async () => notices.length >= 3, 10_000))
  t.same(notices, [
    'a route names a model that no provider serves; no request goes there {"route":"prod/chat","model":"acme/gone"}',
    'a route names a model that no provider serves; no request goes there {"route":"prod/chat","model":"acme/echo-2"}',
    'imported models have no provider here, and are not offered {"models":1,"first":"none/such"}',
  ])
})
