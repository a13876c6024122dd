/**
 * JSON lines with an allow-list of fields. There is deliberately no way to log an object as it is:
 * redaction of named paths is not a defence, not accepting the field is. Leaf.
 */
import { fstatSync } from 'node:fs'
import { type DestinationStream, pino } from 'pino'
import type { FailureCode } from './errors.ts'

/** One line per exchange, written at its end. No bodies, prompts, header values or keys. */
export interface ExchangeLine {
  readonly id: string
  readonly method: string
  /** Route template, never the raw URL. */
  readonly route: string
  readonly status: number
  readonly outcome: string
  readonly durationMs: number
  readonly firstTokenMs?: number | null
  readonly model?: string | null
  readonly provider?: string | null
  readonly attempts?: number
  readonly inputTokens?: number | null
  readonly outputTokens?: number | null
  readonly finish?: string | null
  readonly error?: FailureCode | null
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
  /** Writes what waits, before it returns. To be called before a thread ends. */
  close(): void
}

/** Writes to a pipe are whole up to this size (PIPE_BUF), so that lines of several threads never mix. */
const PIPE_WRITE_MAX_BYTES = 4096
/** Appending to a file is whole at any size; but what waits is measured anew with every line that joins it. */
const FILE_WRITE_MAX_BYTES = 8 * 1024
/** How long a line may wait for others. Nobody reads faster. */
const FLUSH_MS = 100
/** What may wait for a reader that does not read; more is left out, and counted. About 25,000 lines. */
const WAITING_MAX_BYTES = 8 * 1024 * 1024

/**
 * The log of a thread that must not wait for a disk or a pipe: lines of exchanges go to standard output some at a
 * time and from another thread; notices and faults go at once. `file` is an open file descriptor.
 */
export function createBufferedLog(level: LogLevel, file = 1): BufferedLog {
  const maxWrite = fstatSync(file).isFile() ? FILE_WRITE_MAX_BYTES : PIPE_WRITE_MAX_BYTES
  const output = pino.destination({
    dest: file,
    sync: false,
    minLength: maxWrite - 1,
    maxWrite,
    maxLength: WAITING_MAX_BYTES,
    periodicFlush: FLUSH_MS,
  })
  const log = createLog(level, output)
  let dropped = 0
  output.on('drop', () => {
    dropped++
  })
  output.on('drain', () => {
    if (dropped === 0) return
    const lines = dropped
    dropped = 0
    log.notice('log lines were lost, the reader of the log is too slow', { lines })
  })
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
    close() {
      try {
        output.flushSync()
      } catch {
        // Nobody reads any more, so there is nobody to tell.
      }
    },
  }
}

export function createLog(level: LogLevel, destination?: DestinationStream): Log {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
  }
  const sink = destination === undefined ? pino(options) : pino(options, destination)
  return {
    exchange: line => sink.info(line, 'exchange'),
    listening: (url, adminUrl) => sink.info({ url, adminUrl }, 'listening'),
    notice: (message, fields) => sink.info(fields ?? {}, message),
    fault: (message, error) => sink.error(faultFields(error, level), message),
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
