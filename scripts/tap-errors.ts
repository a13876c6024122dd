/**
 * Replaces tap's `async-hook-domain` in suites: `node --import ./scripts/tap-errors.ts`. That library follows every
 * promise of the process to find the test in which an uncaught error was thrown, which costs suites a seventh of their
 * time and more. A suite runs one test after another, so here the test that runs gets the error.
 */
import { registerHooks } from 'node:module'
import { isMainThread } from 'node:worker_threads'

type OnError = (error: unknown, type: string) => void
/** A test of tap, or the whole run. */
interface Running {
  readonly activeSubtests?: ReadonlySet<Running>
  readonly hookDomain: Pick<Domain, 'onerror'>
}

/** Belongs to one test, or to the whole run. */
export class Domain {
  readonly onerror: OnError

  constructor(onerror: OnError) {
    this.onerror = onerror
  }

  destroy(): void {
    // Nothing was registered.
  }
}

// Worker threads inherit the option, and run no tests.
if (isMainThread) {
  registerHooks({
    resolve: (name, context, next) =>
      name === 'async-hook-domain' ? { url: import.meta.url, shortCircuit: true } : next(name, context),
  })
  // Not awaited: tap imports this file.
  void import('tap').then(({ t }) => {
    process.on('uncaughtExceptionMonitor', (error, type) => onUncaught(t as Running, error, type))
  })
}

/** Leaves an error to other listeners, such as a test that waits for it. */
function onUncaught(root: Running, error: unknown, type: string): void {
  if (process.hasUncaughtExceptionCaptureCallback() || process.listenerCount('uncaughtException') > 0) return
  let test = root
  for (
    let inner: Running | undefined = root;
    inner !== undefined;
    inner = [...(test.activeSubtests ?? [])].at(-1)
  )
    test = inner
  test.hookDomain.onerror(error, type)
  process.setUncaughtExceptionCaptureCallback(() => process.setUncaughtExceptionCaptureCallback(null))
}
