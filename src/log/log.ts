/**
 * JSON lines with an allow-list of fields. There is deliberately no way to log an object as it is:
 * redaction of named paths is not a defence, not accepting the field is. Leaf.
 */
import { type DestinationStream, pino } from 'pino'
import { isoInstant } from '../clock.ts'
import type { FailureCode } from '../errors.ts'
import { LogOutput } from './output.ts'

/** One line per exchange, written at its end. No bodies, prompts, header values or keys. */
export interface ExchangeLine {
  readonly id: string
  readonly method: string
  /** Route template, never the raw URL. */
  readonly route: string
  readonly status: number
  readonly outcome: string
  readonly durationMs: number
  // What is undefined is left out of the line.
  readonly firstTokenMs?: number | null | undefined
  readonly model?: string | null | undefined
  readonly provider?: string | null | undefined
  readonly attempts?: number | undefined
  readonly inputTokens?: number | null | undefined
  readonly outputTokens?: number | null | undefined
  readonly finish?: string | null | undefined
  readonly error?: FailureCode | null | undefined
}

export interface Log {
  exchange(line: ExchangeLine): void
  listening(url: string, adminUrl: string): void
  /** A change of state an operator wants to see; `message` is a constant of ours. */
  notice(message: string, fields?: Readonly<Record<string, string | number | boolean>>): void
  /**
   * Something we did not foresee. Only class and code of the error are written, and the stack's function
   * names at debug level: messages may carry what callers or providers sent.
   */
  fault(message: string, error: unknown): void
}

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** A log whose lines leave some at a time. */
export interface BufferedLog extends Log {
  /** Writes what waits, as far as that can be done within half a second. To be called before a thread ends. */
  close(): Promise<void>
}

/**
 * The log of a thread that must not wait for a disk or a pipe: lines of exchanges go to standard output some at a
 * time and from another thread; notices and faults go at once. `file` is an open file descriptor.
 */
export function createBufferedLog(level: LogLevel, file = 1): BufferedLog {
  const output = new LogOutput(file, lines => {
    log.notice('log lines were lost, they could not be written in time', { lines })
    output.flush()
  })
  const log = createLog(level, output)
  const flushed =
    <Arguments extends unknown[]>(write: (...args: Arguments) => void) =>
    (...args: Arguments): void => {
      write(...args)
      output.flush()
    }
  return {
    exchange: log.exchange,
    listening: flushed(log.listening),
    notice: flushed(log.notice),
    fault: flushed(log.fault),
    close: () => output.close(),
  }
}

export function createLog(level: LogLevel, destination: DestinationStream): Log {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  }
  const sink = pino(options, destination)
  const told = sink.isLevelEnabled('info')
  // Whoever starts the gateway waits for this one line, however little it wants to read.
  const ready = told || level === 'silent' ? sink : pino({ ...options, level: 'info' }, destination)
  return {
    exchange(line) {
      if (told) destination.write(exchangeText(line, Date.now()))
    },
    listening: (url, adminUrl) => ready.info({ url, adminUrl }, 'listening'),
    notice: (message, fields) => sink.info(fields ?? {}, message),
    fault: (message, error) => sink.error(faultFields(error, level), message),
  }
}

/**
 * The line as pino would write it, which looks at each field of whatever it is given; here they are known, and
 * nothing else gets in. Hot path.
 */
function exchangeText(line: ExchangeLine, nowMs: number): string {
  const fields = {
    level: 'info',
    time: isoInstant(nowMs),
    id: line.id,
    method: line.method,
    route: line.route,
    status: line.status,
    outcome: line.outcome,
    durationMs: line.durationMs,
    firstTokenMs: line.firstTokenMs,
    model: line.model,
    provider: line.provider,
    attempts: line.attempts,
    inputTokens: line.inputTokens,
    outputTokens: line.outputTokens,
    finish: line.finish,
    error: line.error,
    msg: 'exchange',
  }
  return `${JSON.stringify(fields)}\n`
}

function faultFields(error: unknown, level: LogLevel): Record<string, string> {
  if (!(error instanceof Error)) return { errorClass: typeof error }
  const fields: Record<string, string> = { errorClass: error.constructor.name }
  const code: unknown = Reflect.get(error, 'code')
  if (typeof code === 'string') fields['errorCode'] = code
  if (level === 'debug' || level === 'trace') fields['at'] = stackFrames(error)
  return fields
}

/** Where it happened: the frames of the stack alone. What stands before them repeats the message, of any lines. */
function stackFrames({ stack = '', message }: Error): string {
  const at = stack.indexOf(message)
  // The message was changed since: nothing says any more where it ends.
  if (at === -1) return ''
  return stack
    .slice(at + message.length)
    .split('\n')
    .filter(line => line.startsWith('    at '))
    .slice(0, 8)
    .map(line => line.trim())
    .join(' | ')
}
