/**
 * The log: lines of JSON by pino, with an allow-list of fields. There is deliberately no way to log an object as it
 * is: redaction of named paths is not a defence, not accepting the field is. The only door of this folder. Leaf.
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
  // Fields that are undefined are left out of the line.
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
  /** A change of state that operators want to see; `message` is a constant. */
  notice(message: string, fields?: Readonly<Record<string, string | number | boolean>>): void
  /**
   * An unexpected failure. Only class and code of the error are written, and the stack's function names at debug
   * level: messages may carry text of callers or providers.
   */
  fault(message: string, error: unknown): void
}

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** A log that must be closed before its thread ends. */
export interface ClosableLog extends Log {
  /** Writes the lines in memory, as far as that can be done within half a second. */
  close(): Promise<void>
}

/**
 * The log of a thread that must not block on a disk or a pipe. Lines of exchanges are written in batches, by another
 * thread; notices and faults are written at once. `file` is an open file descriptor.
 */
export function createBufferedLog(level: LogLevel, file = 1): ClosableLog {
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

/** A log for people: writes `12:00:01 info listening url=…` instead of JSON. */
export function createTerminalLog(level: LogLevel, out: { write(text: string): unknown }): Log {
  const terminal = {
    // pino sets these before each write.
    [pino.symbols.needsMetadataGsym]: true,
    lastLevel: 0,
    lastTime: '',
    lastMsg: '',
    lastObj: {},
    write() {
      const time = this.lastTime.replace('"', '').slice(11, 19)
      const words = Object.entries(this.lastObj)
        .filter(([, value]) => value !== undefined)
        .map(([name, value]) => `${name}=${String(value)}`)
      out.write(`${[time, pino.levels.labels[this.lastLevel], this.lastMsg, ...words].join(' ')}\n`)
    },
  }
  return createLog(level, terminal)
}

export function createLog(level: LogLevel, destination: DestinationStream): Log {
  const options = {
    level,
    base: null,
    timestamp: () => `,"time":"${isoInstant(Date.now())}"`,
    formatters: { level: (label: string) => ({ level: label }) },
  }
  const logger = pino(options, destination)
  const wanted = logger.isLevelEnabled('info')
  // Whoever starts the gateway needs this one line at any level but silence.
  const always = wanted || level === 'silent' ? logger : pino({ ...options, level: 'info' }, destination)
  return {
    exchange(line) {
      if (wanted) logger.info(exchangeFields(line), 'exchange')
    },
    listening: (url, adminUrl) => always.info({ url, adminUrl }, 'listening'),
    notice: (message, fields) => logger.info(fields ?? {}, message),
    fault: (message, error) => logger.error(faultFields(error, level), message),
  }
}

/** Copies the fields of the line, so that no other field of the object can be written. Hot path. */
function exchangeFields(line: ExchangeLine): ExchangeLine {
  return {
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
  }
}

function faultFields(error: unknown, level: LogLevel): Record<string, string> {
  if (!(error instanceof Error)) return { errorClass: typeof error }
  const fields: Record<string, string> = { errorClass: error.constructor.name }
  const code: unknown = Reflect.get(error, 'code')
  if (typeof code === 'string') fields['errorCode'] = code
  if (level === 'debug' || level === 'trace') fields['at'] = stackFrames(error)
  return fields
}

/** The frames of the stack alone: the text before them repeats the message, which may have several lines. */
function stackFrames({ stack = '', message }: Error): string {
  const at = stack.indexOf(message)
  // The message was changed since, so its end cannot be found.
  if (at === -1) return ''
  return stack
    .slice(at + message.length)
    .split('\n')
    .filter(line => line.startsWith('    at '))
    .slice(0, 8)
    .map(line => line.trim())
    .join(' | ')
}
