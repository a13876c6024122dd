/** A restart of the gateway while streams are running, with a command that the user supplies. */
import { spawn } from 'node:child_process'
import { type CheckVerdict, fail, pass, skip } from '../check.ts'
import type { Dialect } from '../dialects.ts'
import { RationSpent } from '../ration.ts'
import { readStream } from '../sse.ts'
import { newId, type ProbeAnswer, type Tester } from '../tester.ts'

const STREAMS = 4
/** New requests must succeed again within a minute. */
const RECOVERY_POLL = { tries: 60, pauseMs: 1_000 } as const

export async function restarted(tester: Tester, dialect: Dialect): Promise<CheckVerdict> {
  const command = tester.deps.restartCommand ?? ''
  const count = Math.min(STREAMS, tester.others)
  let started = 0
  let reportBegun: () => void = () => undefined
  const haveBegun = new Promise<void>(resolve => {
    reportBegun = resolve
  })
  const countStream = (): void => {
    if (++started === count) reportBegun()
  }
  const streams = Array.from({ length: count }, () => runStream(tester, dialect, countStream))
  const settled = Promise.allSettled(streams)
  await Promise.race([haveBegun, settled])
  if (started < count) return fail('the streams before the restart did not begin')
  const isEarly = await Promise.race([settled.then(() => true), Promise.resolve(false)])
  if (isEarly) return skip('the streams ended before the restart: use a slower model, or --provider-port')
  const exitCode = await run(command, tester)
  const results = await settled
  if (exitCode !== 0) return fail(`the command ended with ${exitCode === null ? 'no code' : exitCode}`)
  const silent = results.filter(result => result.status === 'rejected' || isSilent(result.value)).length
  const recovery = await awaitRecovery(tester)
  if (silent > 0) return fail(`${silent} of ${count} streams were cut without any sign of an error`)
  return recovery === null
    ? fail('new requests are no longer answered')
    : pass(`${count} streams ended properly or with an error; ${recovery}`)
}

/** Runs a stream during the command; `onBegin` is called at its first text. */
async function runStream(tester: Tester, dialect: Dialect, onBegin: () => void): Promise<ProbeAnswer> {
  const id = newId()
  let eventCount = 0
  return await tester.ask(
    dialect,
    {
      stream: true,
      script: 'slow',
      onText(text) {
        if (eventCount === 0 && dialect.stream(readStream(text)).text !== '') {
          eventCount = 1
          onBegin()
        }
        return undefined
      },
    },
    id,
  )
}

/** True if the client can neither know that the answer is complete nor that it failed. */
function isSilent({ understood, reply }: ProbeAnswer): boolean {
  return reply.status === 200 && understood.end === 'open'
}

/** Resolves to the exit code; null: the command could not start, or was ended by a signal or the time limit. */
function run(command: string, { deps }: Tester): Promise<number | null> {
  return new Promise(resolve => {
    const child = spawn('sh', ['-c', command], { stdio: 'ignore' })
    const timer = deps.clock.after(deps.ration.leftMs, () => child.kill('SIGKILL'))
    child.on('error', () => resolve(null))
    child.on('exit', code => {
      timer.cancel()
      resolve(code)
    })
  })
}

/** Says at which attempt a new request was answered; null: none was. */
async function awaitRecovery(tester: Tester): Promise<string | null> {
  for (let attempt = 1; attempt <= RECOVERY_POLL.tries; attempt++) {
    try {
      const { status } = await tester.request('GET', '/models', null)
      if (status < 500) return `new requests were answered at attempt ${attempt}`
    } catch (error) {
      if (error instanceof RationSpent) return null
    }
    await new Promise<void>(resolve => tester.deps.clock.after(RECOVERY_POLL.pauseMs, resolve))
  }
  return null
}
