/** Two linked ends as two threads have them: messages are copied, and arrive one turn later or at once. */
import type { Clock } from '../../src/base/clock.ts'
import { type LinkMessage, type ThreadApi, ThreadLink } from '../../src/base/thread-rpc.ts'
import { TestClock } from './test-clock.ts'

interface LinkOptions<Theirs> {
  /** What the second end serves. */
  readonly api: Theirs
  readonly clock?: Clock
  /** True: messages arrive in a later turn. */
  readonly isSlow?: boolean
  /** Receives the messages of the first end. */
  readonly sent?: LinkMessage[]
}

/** The first end calls the API of the second one. `sent` and `replied` have the messages of both. */
export function linkedEnds<Theirs extends object, Ours extends object = Record<string, never>>({
  api,
  clock = new TestClock(),
  isSlow = false,
  sent = [],
}: LinkOptions<Theirs>) {
  const replied: LinkMessage[] = []
  const deliver = (to: () => ThreadLink<object>, message: LinkMessage): void => {
    const copy = structuredClone(message)
    if (isSlow) setImmediate(() => to().receive(copy))
    else to().receive(copy)
  }
  const caller = new ThreadLink<Theirs>(clock, message => {
    sent.push(message)
    deliver(() => server as ThreadLink<object>, message)
  })
  const server = new ThreadLink<Ours>(clock, message => {
    replied.push(message)
    deliver(() => caller as ThreadLink<object>, message)
  })
  server.serve(api as unknown as ThreadApi)
  return { caller, server, sent, replied }
}
