/** When a thread collects garbage, by a heap and a clock of the test; and that collections in many threads collect. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { QuietHeap } from '../../src/threads/quiet-heap.ts'
import { PRODUCT_FLAGS } from '../support/product.ts'
import { tempFolder } from '../support/temp-folder.ts'
import { TestClock } from '../support/test-clock.ts'

function watch(grown: () => number, isIdle = () => true) {
  const clock = new TestClock()
  const seen = { bytes: 0, collections: 0, quietTimes: 0 }
  const heap = new QuietHeap({
    clock,
    quietMs: 8_000,
    isIdle,
    onQuiet: () => {
      seen.quietTimes++
    },
    usedBytes: () => {
      seen.bytes += grown()
      return seen.bytes
    },
    collect: () => {
      seen.collections++
    },
  })
  const seconds = (count: number) => {
    for (let second = 0; second < count; second++) clock.advance(1_000)
  }
  return { heap, seen, seconds }
}

t.test('a quiet thread collects once, and again after the next load', async t => {
  let growth = 0
  const { heap, seen, seconds } = watch(() => growth)
  seconds(6)
  t.equal(seen.collections, 0, 'some seconds have to pass')
  seconds(60)
  t.equal(seen.collections, 1)
  t.equal(seen.quietTimes, 1, 'told once in a quiet time')
  growth = 1_000_000
  seconds(60)
  t.equal(seen.collections, 1, 'none under load')
  growth = 1_000
  seconds(60)
  t.equal(seen.collections, 2)
  t.equal(seen.quietTimes, 2)
  heap.close()
  growth = 1_000_000
  seconds(2)
  growth = 0
  seconds(60)
  t.equal(seen.collections, 2, 'none once it is closed')
})

t.test('a thread that somebody waits for does not collect', async t => {
  let idle = false
  const { heap, seen, seconds } = watch(
    () => 0,
    () => idle,
  )
  seconds(60)
  t.equal(seen.collections, 0)
  idle = true
  seconds(60)
  t.equal(seen.collections, 1)
  heap.close()
})

t.test('the drop after a collection does not begin another one', async t => {
  let growth = 0
  const { heap, seen, seconds } = watch(() => growth)
  seconds(10)
  growth = -5_000_000
  seconds(1)
  growth = 0
  seconds(60)
  t.equal(seen.collections, 1)
  heap.close()
})

/** Fails unless garbage is gone after each of many collections. Prints how often it was. */
const COLLECTING = `
  import { Worker, isMainThread } from 'node:worker_threads'
  const { collectGarbage } = await import(process.env.QUIET_HEAP)
  if (isMainThread) for (let count = 0; count < 4; count++) new Worker(new URL(import.meta.url))
  let collected = 0
  for (let round = 0; round < 5; round++) {
    const dropped = new WeakRef({ round })
    // The reference holds its object until the end of this turn.
    await new Promise(resolve => setImmediate(resolve))
    collectGarbage()
    if (dropped.deref() === undefined) collected++
  }
  console.log(collected)
`

t.test('threads collect at the same time, and each one frees what nobody holds', async t => {
  const file = join(tempFolder(), 'collecting.mjs')
  writeFileSync(file, COLLECTING)
  const quietHeap = new URL('../../src/threads/quiet-heap.ts', import.meta.url).href
  const child = spawn(process.execPath, [...PRODUCT_FLAGS, file], {
    env: { ...process.env, QUIET_HEAP: quietHeap },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  let errors = ''
  child.stdout.on('data', (text: Buffer) => {
    output += text.toString()
  })
  child.stderr.on('data', (text: Buffer) => {
    errors += text.toString()
  })
  const [code] = await once(child, 'close')
  t.equal(code, 0)
  t.equal(errors, '')
  t.same(output.trim().split('\n'), Array(5).fill('5'), 'in the main thread and in four workers')
})
