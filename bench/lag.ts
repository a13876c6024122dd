/**
 * Preloaded into a measured gateway (`--import`): records how late the event loop of each serve thread is, one line per
 * sample: `stamp late`, in microseconds. The gateway's own gauge is the median of five samples, which suits its purpose
 * but hides the late samples that a p99 measures. Task workers start without it.
 */
import { appendFileSync } from 'node:fs'
import { workerData } from 'node:worker_threads'

/** Often enough for a p99 of a few seconds, at two hundred wake-ups a second. */
const SAMPLE_MS = 5
/** Samples per write: one every tenth of a second, of some ten microseconds. */
const SAMPLES_PER_WRITE = 20

function watch(file: string): void {
  let lines = ''
  let count = 0
  let due = process.hrtime.bigint() / 1000n + BigInt(SAMPLE_MS * 1000)
  const sample = (): void => {
    const now = process.hrtime.bigint() / 1000n
    lines += `${now} ${now > due ? now - due : 0n}\n`
    if (++count === SAMPLES_PER_WRITE) {
      appendFileSync(file, lines)
      lines = ''
      count = 0
    }
    due = process.hrtime.bigint() / 1000n + BigInt(SAMPLE_MS * 1000)
    setTimeout(sample, SAMPLE_MS).unref()
  }
  setTimeout(sample, SAMPLE_MS).unref()
}

const { thread } = (workerData ?? {}) as { readonly thread?: unknown }
const file = new URL(import.meta.url).searchParams.get('file')
if (typeof thread === 'string' && thread.startsWith('serve') && file !== null) watch(file)
