/** The worker's side of a pool: takes a job on, runs its function, answers in plain data. Task worker. */
import { toPlain } from './failure.ts'
import { begin } from './job-state.ts'
import type { TaskFunction, TaskMessage, TaskReply, TaskTable, WorkerSetup } from './task.ts'

type AnyFunction = TaskFunction<unknown, unknown>

/**
 * What Piscina calls for each job. A worker counts as ready once this has resolved, so the code of its short tasks is
 * brought in before; that of bulk tasks, which is large, by the first job that needs it.
 */
export async function createRunner(
  table: TaskTable,
  setup: WorkerSetup,
): Promise<(message: TaskMessage) => Promise<TaskReply>> {
  const states = new Int32Array(setup.slots)
  const loaded = new Map<string, AnyFunction>()
  const turns = createTurns()

  const load = async (name: string): Promise<AnyFunction> => {
    const task = Object.hasOwn(table, name) ? table[name] : undefined
    if (task === undefined) throw new Error('no such task')
    // The pool's types have matched names and inputs; here they are only names and data.
    const found = (await task.load()) as AnyFunction
    loaded.set(name, found)
    return found
  }

  if (setup.pool === 'evaluation') {
    const short = Object.keys(table).filter(name => table[name]?.pool === setup.pool)
    // What cannot be brought in fails when it is asked for, and alone.
    await Promise.allSettled(short.map(load))
  }

  return async ({ task, input, slot }) => {
    const turn = turns.take()
    if (turn !== null) await turn
    try {
      if (!begin(states, slot)) return { kind: 'withdrawn' }
      const startedMs = performance.now()
      try {
        const output = await (loaded.get(task) ?? (await load(task)))(input)
        return { kind: 'done', output, ranMs: performance.now() - startedMs }
      } catch (error) {
        return { kind: 'failed', failure: toPlain(error), ranMs: performance.now() - startedMs }
      }
    } finally {
      turns.pass()
    }
  }
}

/**
 * One job after the other. Piscina calls for all that have arrived in one turn of the event loop, and answers them
 * after it: the answer of a job that is done would wait for the next one, and be lost if that one kills the worker.
 */
function createTurns() {
  const waiting: (() => void)[] = []
  let taken = false
  return {
    /** Null: it is your turn now. */
    take(): Promise<void> | null {
      if (!taken) {
        taken = true
        return null
      }
      return new Promise(resolve => waiting.push(resolve))
    },
    pass(): void {
      const next = waiting.shift()
      if (next === undefined) taken = false
      // Not in this turn of the loop: the answer has to be sent before.
      else setImmediate(next)
    },
  }
}
