/** A Store whose verbs fail when a test says so: before they take effect, or after, as if the answer were lost. */
import type { Store, StoreVerbs } from '../../src/storage/store.ts'
import { StoreError } from '../../src/storage/store-error.ts'

/** A verb that is called: the number counts all calls of the store from 1, the name is like `batches.work.finish`. */
interface StoreCall {
  readonly number: number
  readonly verb: string
}

export interface StoreFault {
  readonly error: StoreError
  /** True: the verb took effect, and its caller does not hear of it. */
  readonly tookEffect: boolean
}

/** Null: the call succeeds. */
export type Fails = (call: StoreCall) => StoreFault | null

/** What a PostgreSQL server that is away looks like. */
export function awayError(): StoreError {
  return new StoreError('storage: PostgreSQL cannot be used (ECONNREFUSED)', 'ECONNREFUSED')
}

/** What a full disk below SQLite looks like. */
export function fullDiskError(): StoreError {
  return new StoreError('storage: the database cannot be used (database or disk is full)', 'SQLITE_FULL')
}

/** Fails one call, by its number. */
export function atCall(number: number, error = awayError(), tookEffect = false): Fails {
  return call => (call.number === number ? { error, tookEffect } : null)
}

interface FailingStore {
  readonly store: Store
  /** All verbs that were called, in their order. `close` is none of them. */
  readonly calls: readonly string[]
}

/**
 * Wraps a store. Verbs within `audited` are counted too, behind `audited` itself. They fail their transaction, as the
 * database would.
 */
export function failingStore(store: Store, fails: Fails): FailingStore {
  const calls: string[] = []
  const run = async (verb: string, work: () => unknown): Promise<unknown> => {
    calls.push(verb)
    const fault = fails({ number: calls.length, verb })
    if (fault !== null && !fault.tookEffect) throw fault.error
    const outcome = await work()
    if (fault !== null) throw fault.error
    return outcome
  }
  const wrapped = <Group extends object>(group: Group, path: string): Group =>
    new Proxy(group, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name)
        const verb = `${path}${String(name)}`
        if (typeof value === 'function') {
          return (...given: readonly unknown[]) => run(verb, () => Reflect.apply(value, target, given))
        }
        return typeof value === 'object' && value !== null ? wrapped(value, `${verb}.`) : value
      },
    })
  const verbs: StoreVerbs = wrapped(store, '')
  return {
    calls,
    store: {
      ...groupsOf(verbs, store),
      audited: async (change, entryOf) =>
        (await run('audited', () =>
          store.audited(within => change(wrapped(within, '')), entryOf),
        )) as Awaited<ReturnType<typeof change>>,
      probe: () => run('probe', () => store.probe()) as Promise<void>,
      close: () => store.close(),
    },
  }
}

/** The groups of verbs as plain fields, so that the store can be spread. */
function groupsOf(verbs: StoreVerbs, { audited: _, probe: __, close: ___, ...groups }: Store): StoreVerbs {
  return Object.fromEntries(
    Object.keys(groups).map(name => [name, Reflect.get(verbs, name) as unknown]),
  ) as unknown as StoreVerbs
}
