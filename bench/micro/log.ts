/**
 * Cost of log lines in processor time, compared with a plain `JSON.stringify` of the same fields:
 * `npx node bench/micro/log.ts`. Figures are comparable only within one run.
 */
import { openSync } from 'node:fs'
import { createBufferedLog, createLog, createTerminalLog, type ExchangeLine } from '../../src/base/log/log.ts'

const CALLS = 200_000
const ROUNDS = 9

/** Nanoseconds of processor time per call, the median of the rounds. */
function time(name: string, call: (n: number) => void): void {
  for (let n = 0; n < CALLS / 4; n++) call(n)
  const times = Array.from({ length: ROUNDS }, () => {
    const before = process.cpuUsage()
    for (let n = 0; n < CALLS; n++) call(n)
    const { user, system } = process.cpuUsage(before)
    return ((user + system) * 1000) / CALLS
  }).toSorted((a, b) => a - b)
  const [least = 0, median = 0, most = 0] = [times[0], times[ROUNDS >> 1], times[ROUNDS - 1]]
  process.stdout.write(
    `${name.padEnd(44)} ${median.toFixed(0).padStart(6)} ns (${least.toFixed(0)}..${most.toFixed(0)})\n`,
  )
}

const lineOf = (n: number): ExchangeLine => ({
  id: 'gen-1767225600-0123456789abcdefghij',
  method: 'POST',
  route: '/responses',
  status: 200,
  outcome: 'completed',
  durationMs: (n % 1000) / 10,
  firstTokenMs: (n % 100_000) / 1000,
  model: 'vendor-1/model-1',
  provider: 'provider-1',
  attempts: 1,
  inputTokens: 12,
  outputTokens: n % 300,
  finish: 'stop',
  error: null,
})

let bytes = 0
const count = {
  write(text: string): void {
    bytes += text.length
  },
}
const plain = createLog('info', count)
const quiet = createLog('warn', count)
const buffered = createBufferedLog('info', { file: openSync('/dev/null', 'a') })
const terminal = createTerminalLog('info', count)

time('JSON.stringify of the fields', n => count.write(JSON.stringify(lineOf(n))))
time('line of an exchange', n => plain.exchange(lineOf(n)))
time('line of an exchange, written to a file', n => buffered.exchange(lineOf(n)))
time('line of an exchange, not wanted', n => quiet.exchange(lineOf(n)))
time('line of an exchange, for a terminal', n => terminal.exchange(lineOf(n)))
time('notice', n => plain.notice('process', 'something changed', { n }))
await buffered.close()
process.stdout.write(`${bytes} characters\n`)
