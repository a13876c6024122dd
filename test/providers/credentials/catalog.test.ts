import t from 'tap'
import { GatewayError } from '../../../src/base/errors.ts'
import {
  CredentialCatalog,
  type CredentialCatalogOptions,
  NO_CREDENTIALS,
  type WorkspaceCredentials,
} from '../../../src/providers/credentials/catalog.ts'
import { createVault } from '../../../src/providers/credentials/vault.ts'
import type { CredentialRecord } from '../../../src/storage/store.ts'
import { endpointOf } from '../../support/endpoint.ts'
import { credentialOf, sealedRecord } from '../../support/own-keys.ts'
import { TestClock } from '../../support/test-clock.ts'

const vault = createVault([{ id: 'k1', secret: Buffer.alloc(32, 7) }])
const ENDPOINT = endpointOf('openai-chat', { slug: 'p' })
const ASKER = { keyHash: 'h', user: null }

interface Setup {
  readonly credentials: CredentialCatalog
  readonly clock: TestClock
  readonly log: string[]
  /** Names of workspaces, in the order in which the store was asked. */
  readonly asked: string[]
  /** What the store has of the workspace `ws`. */
  records: readonly CredentialRecord[]
  store: 'works' | 'fails' | 'hangs'
}

function setup(settings: Partial<CredentialCatalogOptions> = {}): Setup {
  const clock = new TestClock()
  const log: string[] = []
  const asked: string[] = []
  const ofWorkspace = async (organizationId: string, workspaceId: string) => {
    asked.push(`${organizationId}/${workspaceId}`)
    if (state.store === 'fails') throw new Error('database is away: secret-detail')
    if (state.store === 'hangs') return new Promise<never>(() => undefined)
    return workspaceId === 'ws' ? state.records : []
  }
  const credentials = new CredentialCatalog({
    store: { credentials: { ofWorkspace } },
    clock,
    log: { fault: (_, message) => log.push(message), notice: (_, message) => log.push(message) },
    ...settings,
  })
  const state: Setup = { credentials, clock, log, asked, store: 'works', records: [record('one')] }
  return state
}

const record = (id: string, fields = {}) =>
  sealedRecord(vault, credentialOf('p', { id, ...fields }), `key-${id}`)

/** Ids of the keys that may be used, `at once` when no promise was needed; or the code of the refusal. */
async function ids(answer: WorkspaceCredentials | Promise<WorkspaceCredentials>): Promise<string> {
  try {
    const keys = (await answer).select(ENDPOINT, ASKER).map(({ id }) => id)
    return `${answer instanceof Promise ? '' : 'at once: '}${keys.join()}`
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error
    return error.code
  }
}

t.test('the store is asked once, however many wait; then it is known at once', async t => {
  const state = setup()
  const { credentials, asked } = state
  const answers = await Promise.all([1, 2, 3].map(() => ids(credentials.of('o', 'ws'))))
  t.same(answers, ['one', 'one', 'one'])
  t.equal(await ids(credentials.of('o', 'ws')), 'at once: one')
  t.same(asked, ['o/ws'])
})

t.test('a workspace without credentials costs one lookup', async t => {
  const { credentials, asked } = setup()
  t.equal(await credentials.of('o', 'empty'), NO_CREDENTIALS)
  t.equal(credentials.of('o', 'empty'), NO_CREDENTIALS)
  t.same(asked, ['o/empty'])
})

t.test('workspaces of the same name in two organizations are two', async t => {
  const { credentials, asked } = setup()
  await credentials.of('o', 'ws')
  await credentials.of('p', 'ws')
  t.same(asked, ['o/ws', 'p/ws'])
})

t.test('a key without a workspace belongs to the default one', async t => {
  const { credentials, asked } = setup()
  await credentials.of('o', null)
  t.same(asked, ['o/ws_default'])
})

t.test('nothing of a key is kept, sealed or not', async t => {
  const { credentials } = setup()
  const keys = await credentials.of('o', 'ws')
  t.equal(keys.select(ENDPOINT, ASKER).length, 1)
  t.notMatch(JSON.stringify(keys.select(ENDPOINT, ASKER)), /sealed|wrapped|box|key-one/)
})

t.test('a change is seen when what is known is no longer fresh, or at once after word of it', async t => {
  const state = setup({ freshMs: 1000 })
  const { credentials, clock } = state
  t.equal(await ids(credentials.of('o', 'ws')), 'one')
  state.records = [record('two')]
  clock.advance(999)
  t.equal(await ids(credentials.of('o', 'ws')), 'at once: one')
  clock.advance(1)
  t.equal(await ids(credentials.of('o', 'ws')), 'two')
  state.records = [record('three')]
  credentials.invalidate('o', 'other')
  t.equal(await ids(credentials.of('o', 'ws')), 'at once: two')
  credentials.invalidate('o', 'ws')
  t.equal(await ids(credentials.of('o', 'ws')), 'three')
})

t.test(
  'where word may have been missed, everything is read anew, and goes on if the store is away',
  async t => {
    const state = setup()
    const { credentials } = state
    await credentials.of('o', 'ws')
    await credentials.of('o', 'empty')
    state.records = [record('two')]
    credentials.invalidateAll()
    t.equal(await ids(credentials.of('o', 'ws')), 'two')
    credentials.invalidateAll()
    state.store = 'fails'
    t.equal(await ids(credentials.of('o', 'ws')), 'two')
    t.same(state.asked, ['o/ws', 'o/empty', 'o/ws', 'o/ws'])
  },
)

t.test('what was read before a change is not kept after word of it', async t => {
  const state = setup()
  const early = ids(state.credentials.of('o', 'ws'))
  state.credentials.invalidate('o', 'ws')
  state.records = [record('two')]
  t.equal(await ids(state.credentials.of('o', 'ws')), 'two')
  await early
  t.equal(await ids(state.credentials.of('o', 'ws')), 'at once: two')
  t.equal(state.asked.length, 2)
})

t.test('while the store is away, known workspaces go on and unknown ones are refused', async t => {
  const state = setup({ freshMs: 1000, staleMs: 60_000 })
  const { credentials, clock, log } = state
  await credentials.of('o', 'ws')
  state.store = 'fails'
  clock.advance(1000)
  t.equal(await ids(credentials.of('o', 'ws')), 'one')
  t.equal(await ids(credentials.of('o', 'ws')), 'at once: one', 'and are not asked for with every request')
  t.equal(
    await ids(credentials.of('o', 'new')),
    'store_unavailable',
    'own keys may exist: no shared endpoint',
  )
  t.same(log, ['cannot read provider credentials from the store'])
  const before = state.asked.length
  clock.advance(1000)
  t.equal(await ids(credentials.of('o', 'ws')), 'at once: one', 'nobody waits a second time')
  await new Promise(resolve => setImmediate(resolve))
  t.equal(state.asked.length, before + 1, 'but it is asked')
  clock.advance(60_000)
  t.equal(await ids(credentials.of('o', 'ws')), 'store_unavailable', 'not for ever')
  state.store = 'works'
  t.equal(await ids(credentials.of('o', 'ws')), 'one')
  t.equal(log.at(-1), 'provider credentials can be read from the store again')
})

t.test('a store that hangs counts as away', async t => {
  const state = setup({ lookupMs: 500, maxLookups: 1 })
  state.store = 'hangs'
  const waiting = ids(state.credentials.of('o', 'ws'))
  t.equal(await ids(state.credentials.of('o', 'other')), 'store_unavailable', 'no more than so many at once')
  state.clock.advance(500)
  t.equal(await waiting, 'store_unavailable')
  t.equal(state.clock.armed, 0)
})

t.test(
  'memory is bounded by credentials, not only by workspaces; one that is too large is still kept',
  async t => {
    const state = setup({ maxCredentials: 5 })
    state.records = Array.from({ length: 9 }, (_, index) => record(`k${index}`))
    await state.credentials.of('o', 'small')
    await state.credentials.of('o', 'ws')
    t.match(await ids(state.credentials.of('o', 'ws')), 'at once')
    t.notMatch(await ids(state.credentials.of('o', 'small')), 'at once', 'the smaller one had to give way')
  },
)
