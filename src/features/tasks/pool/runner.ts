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
 * so the code of evaluation tasks is loaded first. The code of bulk tasks is large: it is loaded first only for tasks
 * that the pool has run before, otherwise with the first job.
 */
export async function createRunner(
  table: TaskTable,
  setup: WorkerSetup,
): Promise<(message: TaskMessage) => Promise<TaskReply>> {
  const loadedTasks = new Map<string, AnyFunction>()
  let phaseCell: Int32Array | null = null

  const load = async (name: string): Promise<AnyFunction> => {
    const task = Object.hasOwn(table, name) ? table[name] : undefined
    if (task === undefined) throw new Error(`the table has no task ${name}`)
    // The pool's types have matched names and inputs; this side sees only names and data.
    const run = (await task.load()) as AnyFunction
    loadedTasks.set(name, run)
    return run
  }

  const isLoadedFirst = (name: string): boolean =>
    table[name]?.pool === setup.pool && (setup.pool === 'evaluation' || setup.tasks.has(name))
  // A task that cannot be loaded fails alone, when a job needs it.
  await Promise.allSettled(Object.keys(table).filter(isLoadedFirst).map(load))

  const enterPhase = (phase: number): void => {
    if (phaseCell === null) return
    Atomics.store(phaseCell, 0, phase)
    Atomics.notify(phaseCell, 0)
  }

  return async ({ task, input, phase }) => {
    phaseCell = phase ?? phaseCell
    const startedMs = performance.now()
    let cpuBefore = process.threadCpuUsage()
    const times = (): TaskTimes => ({
      ranMs: performance.now() - startedMs,
      cpuMs: cpuMs(process.threadCpuUsage(cpuBefore)),
    })
    try {
      let taskFunction = loadedTasks.get(task)
      if (taskFunction === undefined) {
        enterPhase(JOB_PHASES.loading)
        taskFunction = await load(task).finally(() => enterPhase(JOB_PHASES.running))
        cpuBefore = process.threadCpuUsage()
      } else enterPhase(JOB_PHASES.running)
      const output = await taskFunction(input)
      return { kind: 'done', output, ...times() }
    } catch (error) {
      return { kind: 'failed', failure: toPlain(error), ...times() }
    }
  }
}

function cpuMs({ user, system }: NodeJS.CpuUsage): number {
  return (user + system) / 1000
}
