/** The end of a command by Ctrl+C or a signal. */

const SIGNALS = { SIGINT: 2, SIGTERM: 15 } as const
/** Exit codes for signals begin here, as in shells. */
const EXIT_SIGNALLED = 128

/** Aborts at the first signal; the same signal again ends the process. Call `end` when the command is over. */
export function stopSignal() {
  const controller = new AbortController()
  let exitCode = EXIT_SIGNALLED
  const listeners = (Object.keys(SIGNALS) as (keyof typeof SIGNALS)[]).map(name => {
    const listener = () => {
      exitCode = EXIT_SIGNALLED + SIGNALS[name]
      controller.abort(new Error(name))
    }
    process.once(name, listener)
    return { name, listener }
  })
  return {
    signal: controller.signal,
    get exitCode() {
      return exitCode
    },
    end() {
      for (const { name, listener } of listeners) process.off(name, listener)
    },
  }
}
