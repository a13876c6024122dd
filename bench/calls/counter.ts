/**
 * Preloaded into a counted gateway (`--import`): counts the function calls, promises, timers and immediates of the
 * gateway's own sources in its serve thread. Takes one command per line on a socket, and answers each with one line of
 * JSON.
 *
 * V8 runs no optimised code while it counts calls, so inlining hides none. Calls and promises are counted in different
 * requests, because a promise hook is itself a call.
 */
import { createHook } from 'node:async_hooks'
import { type Profiler, Session } from 'node:inspector'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { workerData } from 'node:worker_threads'

/** Calls of one function. */
export interface CalledFunction {
  /** Path below `src`. */
  readonly file: string
  readonly name: string
  readonly calls: number
}

/** One thing that was made in one place. */
export interface MadeThing {
  readonly kind: 'promise' | 'timer' | 'immediate'
  /** Path below `src`, with line and column. */
  readonly place: string
}

export type CounterCommand = 'start-calls' | 'take-calls' | 'start-made' | 'take-made'

const KINDS: Readonly<Record<string, MadeThing['kind']>> = {
  PROMISE: 'promise',
  Timeout: 'timer',
  Immediate: 'immediate',
}
/** A timer of ours is made some frames of Node.js below the line that asked for it. */
const STACK_FRAMES = 20

function listen(path: string, root: string): void {
  const session = new Session()
  session.connect()
  let madeThings: MadeThing[] = []

  const takeCalls = (): CalledFunction[] => {
    const functions: CalledFunction[] = []
    session.post('Profiler.takePreciseCoverage', (error, taken) => {
      if (error !== null) throw error
      functions.push(...calledIn(taken.result, root))
    })
    return functions
  }

  const obey: Record<CounterCommand, () => unknown> = {
    'start-calls'() {
      session.post('Profiler.enable')
      session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
    },
    'take-calls': takeCalls,
    'start-made'() {
      session.post('Profiler.stopPreciseCoverage')
      createHook({
        init(_, type) {
          const kind = KINDS[type]
          if (kind === undefined) return
          const place = placeOf(root, kind === 'promise')
          if (place !== null) madeThings.push({ kind, place })
        },
      }).enable()
    },
    'take-made'() {
      const things = madeThings
      madeThings = []
      return things
    },
  }

  createServer(socket => {
    socket.unref()
    createInterface({ input: socket }).on('line', line => {
      const result = obey[line as CounterCommand]()
      socket.write(`${JSON.stringify(result ?? null)}\n`)
    })
  })
    .listen(path)
    .unref()
}

function calledIn(scripts: readonly Profiler.ScriptCoverage[], root: string): CalledFunction[] {
  return scripts
    .filter(({ url }) => url.startsWith(root))
    .flatMap(({ url, functions }) =>
      functions.flatMap(({ functionName, ranges }) => {
        const [whole] = ranges
        if (whole === undefined || whole.count === 0) return []
        const name = `${functionName === '' ? 'anonymous' : functionName}@${whole.startOffset}`
        return [{ file: url.slice(root.length), name, calls: whole.count }]
      }),
    )
}

/** The line of ours that made something; null where another's code did. `direct`: no frame lies between. */
function placeOf(root: string, direct: boolean): string | null {
  const limit = Error.stackTraceLimit
  Error.stackTraceLimit = STACK_FRAMES
  const frames = (new Error().stack ?? '').split('\n').slice(1)
  Error.stackTraceLimit = limit
  // Its own frames, those of hooks, and built-ins such as Promise.withResolvers.
  const own = frames.filter(
    frame =>
      !frame.includes(import.meta.url) && !frame.includes('async_hooks') && !frame.includes('(<anonymous>)'),
  )
  const from = direct ? own.slice(0, 1) : own
  const frame = from.find(one => one.includes(root))
  return frame === undefined ? null : frame.slice(frame.indexOf(root) + root.length).replace(/\)$/, '')
}

const { thread } = (workerData ?? {}) as { readonly thread?: unknown }
const { searchParams } = new URL(import.meta.url)
const path = searchParams.get('socket')
const root = searchParams.get('root')
if (typeof thread === 'string' && thread.startsWith('serve') && path !== null && root !== null)
  listen(path, root)
