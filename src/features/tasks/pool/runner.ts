/** The worker side of a pool: runs the function of each job and answers with plain data. Task worker. */
import {
  JOB_PHASES,
  type TaskFunction,
  type TaskMessage,
  type TaskReply,
  type TaskTable,
  type TaskTimes,
  toPlain,
  type WorkerSetup,
} from '../task.ts'

type AnyFunction = TaskFunction<unknown, unknown>

/**
 * Creates the function that Piscina calls for each job, one after the other. A worker is ready once this has resolved,
 * so the code of short tasks is loaded first. The code of a bulk task is large: that of tasks which the pool has run
 * before is loaded first too, any other with its first job.
 */
export async function createRunner(
  table: TaskTable,
  setup: WorkerSetup,
): Promise<(message: TaskMessage) => Promise<TaskReply>> {
  const loaded = new Map<string, AnyFunction>()
  let cell: Int32Array | null = null

  const load = async (name: string): Promise<AnyFunction> => {
    const task = Object.hasOwn(table, name) ? table[name] : undefined
    if (task === undefined) throw new Error('no such task')
    // The pool's types have matched names and inputs; this side sees only names and data.
    const run = (await task.load()) as AnyFunction
    loaded.set(name, run)
    return run
  }

  const loadsFirst = (name: string): boolean =>
    table[name]?.pool === setup.pool && (setup.pool === 'evaluation' || setup.tasks.has(name))
  // A task that cannot be loaded fails alone, when a job needs it.
  await Promise.allSettled(Object.keys(table).filter(loadsFirst).map(load))

  const enter = (phase: number): void => {
    if (cell === null) return
    Atomics.store(cell, 0, phase)
    Atomics.notify(cell, 0)
  }

  return async ({ task, input, phase }) => {
    cell = phase ?? cell
    const startedMs = performance.now()
    let cpuBefore = process.threadCpuUsage()
    const times = (): TaskTimes => ({
      ranMs: performance.now() - startedMs,
      cpuMs: cpuMs(process.threadCpuUsage(cpuBefore)),
    })
    try {
      let work = loaded.get(task)
      if (work === undefined) {
        enter(JOB_PHASES.loading)
        work = await load(task).finally(() => enter(JOB_PHASES.running))
        cpuBefore = process.threadCpuUsage()
      } else enter(JOB_PHASES.running)
      const output = await work(input)
      return { kind: 'done', output, ...times() }
    } catch (error) {
      return { kind: 'failed', failure: toPlain(error), ...times() }
    }
  }
}

function cpuMs({ user, system }: NodeJS.CpuUsage): number {
  return (user + system) / 1000
}
