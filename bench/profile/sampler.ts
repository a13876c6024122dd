/**
 * Preloaded into a profiled gateway (`--import`): samples where its serve thread and its main thread spend time, what
 * they allocate, and how long the turns of their event loops are. Takes one command per line on a socket (the main
 * thread's has `-main` at the end of its name), and answers each with the file that it wrote, or null.
 */
import { rmSync, writeFileSync } from 'node:fs'
import { type HeapProfiler, type Profiler, Session } from 'node:inspector'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { isMainThread, workerData } from 'node:worker_threads'
import { TurnWatch, type Watched } from './turn-watch.ts'

export type SamplerCommand =
  | 'start-time'
  | 'take-time'
  | 'start-bytes'
  | 'take-bytes'
  | 'start-turns'
  | 'take-turns'

/** A function of 0.2 % of the time is seen thirty times in eight seconds. */
const TIME_INTERVAL_MICROS = 200
/** Mean distance of two samples; small beside what a second of requests allocates. */
const BYTES_INTERVAL = 16_384

function listen(path: string, folder: string, prefix: string): void {
  const session = new Session()
  session.connect()
  const turns = new TurnWatch()
  const written = (
    name: string,
    taken: Profiler.Profile | HeapProfiler.SamplingHeapProfile | Watched,
  ): string => {
    const file = `${folder}/${prefix}${name}`
    writeFileSync(file, JSON.stringify(taken))
    return file
  }
  const obey: Record<SamplerCommand, () => string | null> = {
    'start-time'() {
      session.post('Profiler.enable')
      session.post('Profiler.setSamplingInterval', { interval: TIME_INTERVAL_MICROS })
      session.post('Profiler.start')
      return null
    },
    'take-time'() {
      let file = null
      session.post('Profiler.stop', (error, { profile }) => {
        if (error === null) file = written('time.cpuprofile', profile)
      })
      return file
    },
    'start-turns'() {
      turns.start()
      return null
    },
    'take-turns': () => written('turns.json', turns.take()),
    'start-bytes'() {
      session.post('HeapProfiler.startSampling', {
        samplingInterval: BYTES_INTERVAL,
        includeObjectsCollectedByMajorGC: true,
        includeObjectsCollectedByMinorGC: true,
      })
      return null
    },
    'take-bytes'() {
      let file = null
      session.post('HeapProfiler.stopSampling', (error, { profile }) => {
        if (error === null) file = written('bytes.heapprofile', profile)
      })
      return file
    },
  }
  createServer(socket => {
    socket.unref()
    createInterface({ input: socket }).on('line', line => {
      socket.write(`${JSON.stringify(obey[line as SamplerCommand]())}\n`)
    })
  })
    .listen(path)
    .unref()
}

const { thread } = (workerData ?? {}) as { readonly thread?: unknown }
const { searchParams } = new URL(import.meta.url)
const path = searchParams.get('socket')
const folder = searchParams.get('folder')
if (path !== null && folder !== null) {
  if (typeof thread === 'string' && thread.startsWith('serve')) listen(path, folder, '')
  if (isMainThread) {
    // The command replaces its process once, and the first one has left its socket.
    rmSync(`${path}-main`, { force: true })
    listen(`${path}-main`, folder, 'main-')
  }
}
