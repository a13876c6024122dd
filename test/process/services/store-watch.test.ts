import t from 'tap'
import { watchStore } from '../../../src/process/services/store-watch.ts'
import { VaultKeyError } from '../../../src/providers/credentials/vault-keys.ts'
import { StoreError } from '../../../src/storage/open.ts'
import { TestClock } from '../../support/test-clock.ts'

const REFUSED = new StoreError('storage: PostgreSQL cannot be used (ECONNREFUSED)', 'ECONNREFUSED')
/** All that is to be done now is done. */
const turn = () => new Promise(resolve => setImmediate(resolve))

/** What the Store does is what `fails` says, null: it answers; a preparation that waits is ended by `go`. */
function scene() {
  const clock = new TestClock()
  const lines: string[] = []
  const scene = {
    clock,
    lines,
    fails: null as Error | null,
    waits: null as Promise<void> | null,
    tries: 0,
    watch: () =>
      watchStore({
        store: {
          probe: async () => {
            if (scene.fails !== null) throw scene.fails
          },
        },
        prepare: async () => {
          scene.tries++
          await scene.waits
          if (scene.fails !== null) throw scene.fails
          return 'ready'
        },
        clock,
        log: {
          fault: (_, message) => void lines.push(message),
          notice: (_, message) => void lines.push(message),
        },
      }),
  }
  return scene
}

t.test('a store that is there is prepared before anything else', async t => {
  const { watch, lines, clock } = scene()
  const watched = await watch()
  t.equal(watched.state, 'there')
  t.equal(await watched.prepared, 'ready')
  t.same(lines, [])
  watched.close()
  t.equal(clock.armed, 0)
})

t.test('one that is away is tried until it comes, and then watched', async t => {
  const away = scene()
  const { clock, lines } = away
  away.fails = REFUSED
  const watch = await away.watch()
  t.equal(watch.state, 'new')
  for (let tries = 1; tries < 5; tries++) {
    t.equal(away.tries, tries)
    clock.advance(500)
    await turn()
  }
  away.fails = null
  clock.advance(500)
  t.equal(await watch.prepared, 'ready')
  t.equal(watch.state, 'there')
  t.same(lines, ['cannot use the store', 'the store is available again'], 'told once each way')

  away.fails = REFUSED
  for (let n = 0; n < 3; n++) {
    clock.advance(2_000)
    await turn()
    t.equal(watch.state, 'away', 'what was prepared once is not new again')
  }
  away.fails = null
  clock.advance(2_000)
  await turn()
  t.equal(watch.state, 'there')
  t.equal(lines.length, 4)
  t.equal(away.tries, 6)
  watch.close()
  t.equal(clock.armed, 0)
})

t.test(
  'one that is there and not right refuses the start, but ends no gateway that waited for it',
  async t => {
    const wrong = new VaultKeyError('GATEWAY_VAULT_KEYS: is not the one')
    for (const error of [
      wrong,
      new StoreError('storage: PostgreSQL cannot be used (wrong user or password)', '28P01'),
      new StoreError('storage: the database schema belongs to another version of Sluice', 'schema'),
    ]) {
      const refused = scene()
      refused.fails = error
      await t.rejects(refused.watch(), error)
      t.equal(refused.clock.armed, 0)
    }
    const late = scene()
    late.fails = REFUSED
    const watch = await late.watch()
    late.fails = wrong
    late.clock.advance(500)
    await turn()
    t.equal(watch.state, 'new')
    t.equal(watch.preparationError, wrong)
    late.fails = null
    late.clock.advance(5_000)
    t.equal(await watch.prepared, 'ready')
    t.equal(watch.preparationError, null)
    watch.close()
  },
)

t.test('one that says nothing does not hold the start up', async t => {
  const silent = scene()
  const { clock } = silent
  const answer = Promise.withResolvers<void>()
  silent.waits = answer.promise
  const starting = silent.watch()
  await turn()
  clock.advance(5_000)
  const watch = await starting
  t.equal(watch.state, 'new')
  clock.advance(60_000)
  t.equal(silent.tries, 1, 'it is not asked twice at once')
  answer.resolve()
  t.equal(await watch.prepared, 'ready')
  t.equal(watch.state, 'there')
  watch.close()
})
