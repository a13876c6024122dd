/** Our own signal does what an AbortSignal does, as far as it goes. */
import t from 'tap'
import { abortSignalOf, RequestAbort, type RequestSignal } from '../../src/base/signal.ts'

interface Trigger {
  readonly signal: RequestSignal
  readonly abort: (reason: Error) => void
}

const KINDS: Readonly<Record<string, () => Trigger>> = {
  own: () => {
    const own = new RequestAbort()
    return { signal: own, abort: reason => own.abort(reason) }
  },
  native: () => {
    const controller = new AbortController()
    return { signal: controller.signal, abort: reason => controller.abort(reason) }
  },
}
const REASON = new Error('enough')

for (const [name, make] of Object.entries(KINDS)) {
  t.test(`a signal (${name})`, async t => {
    await t.test('fires once, with the first reason', async t => {
      const { signal, abort } = make()
      let calls = 0
      signal.addEventListener('abort', () => calls++, { once: true })
      t.same([signal.aborted, signal.reason], [false, undefined])
      signal.throwIfAborted()
      abort(REASON)
      abort(new Error('later'))
      t.same([signal.aborted, signal.reason, calls], [true, REASON, 1])
      t.throws(() => signal.throwIfAborted(), REASON)
    })

    await t.test('calls its listeners in their order, and each one once', async t => {
      const { signal, abort } = make()
      const called: string[] = []
      const first = () => called.push('first')
      const second = () => called.push('second')
      const left = () => called.push('left')
      for (const listener of [left, first, second, first, second])
        signal.addEventListener('abort', listener, { once: true })
      signal.removeEventListener('abort', left)
      signal.addEventListener('abort', () => called.push('third'))
      abort(REASON)
      t.same(called, ['first', 'second', 'third'])
    })

    await t.test('calls nobody who has left, and nobody who comes too late', async t => {
      const { signal, abort } = make()
      const called: string[] = []
      const leaver = () => called.push('leaver')
      const other = () => called.push('other')
      const sentAway = () => called.push('sent away')
      signal.addEventListener('abort', leaver)
      signal.addEventListener('abort', () => signal.removeEventListener('abort', sentAway))
      signal.addEventListener('abort', other)
      signal.addEventListener('abort', sentAway)
      signal.removeEventListener('abort', leaver)
      signal.removeEventListener('abort', () => undefined)
      abort(REASON)
      signal.addEventListener('abort', leaver)
      t.same(called, ['other'])
    })

    await t.test('is an AbortSignal for libraries, whenever they ask', async t => {
      const early = make()
      const native = abortSignalOf(early.signal)
      t.equal(abortSignalOf(early.signal), native)
      const both = AbortSignal.any([native, new AbortController().signal])
      early.abort(REASON)
      t.same([native.aborted, native.reason, both.aborted, both.reason], [true, REASON, true, REASON])
      const late = make()
      late.abort(REASON)
      t.equal(abortSignalOf(late.signal).reason, REASON)
    })

    await t.test('a listener that throws keeps no other one from its call', async t => {
      const { signal, abort } = make()
      const fault = new Error('a fault of the listener')
      const uncaught = new Promise(resolve => process.once('uncaughtException', resolve))
      let called = false
      signal.addEventListener('abort', () => {
        throw fault
      })
      signal.addEventListener('abort', () => {
        called = true
      })
      abort(REASON)
      t.equal(called, true)
      t.equal(await uncaught, fault)
    })
  })
}
