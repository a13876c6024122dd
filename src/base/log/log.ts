/**
 * The log: decides which lines are written (level, `log.successShare`), and writes them as JSON lines in the format of
 * pino, or for a terminal, with an allow-list of fields. It never logs whole objects: refusing unknown fields is safe,
 * redacting named paths is not.
 * Leaf.
 */
import { writeSync } from 'node:fs'
import { type DestinationStream, pino } from 'pino'
import { isoInstant } from '../clock.ts'
import { FAILURES, type FailureCode, isError } from '../errors.ts'
import { LogOutput } from './output.ts'

/** One attempt that failed. */
export interface FailedAttempt {
  /** Slug. */
  readonly provider: string
  readonly model: string
  readonly error: FailureCode | null
  /** HTTP status of the provider; null if there was no reply. */
  readonly status: number | null
  /** Like `cause` of the line. */
  readonly cause: string | null
}

/** The line of one exchange, written at its end. No bodies, prompts, header values or keys. */
export interface ExchangeLine {
  readonly id: string
  /** The value of the caller's `X-Request-Id`. */
  readonly requestId?: string | undefined
  /**
   * Trace id of the caller or of the gateway, and the gateway's span id (absent without traces); 32 and 16 hex digits.
   */
  readonly traceId?: string | undefined
  readonly spanId?: string | undefined
  readonly method: string
  /** Route template, never the raw URL. */
  readonly route: string
  readonly status: number
  readonly outcome: string
  readonly durationMs: number
  // The line omits undefined fields.
  /** For an unknown route, in the form of `loggablePath`. */
  readonly path?: string | undefined
  readonly firstTokenMs?: number | null | undefined
  readonly model?: string | null | undefined
  /** The requested model in the form of `loggableModel`; absent if it equals `model`. */
  readonly requestedModel?: string | undefined
  readonly provider?: string | null | undefined
  readonly attempts?: number | undefined
  /** Bounded, in order; absent if none failed. */
  readonly failedAttempts?: readonly FailedAttempt[] | undefined
  readonly inputTokens?: number | null | undefined
  readonly outputTokens?: number | null | undefined
  readonly finish?: string | null | undefined
  /** USD: the charge for the request, including model calls by its tools. */
  readonly cost?: number | null | undefined
  readonly error?: FailureCode | null | undefined
  /** Path of the field that a 400 or 422 of the gateway is about. */
  readonly field?: string | undefined
  /** The message to the caller, if the gateway refused the request; texts of providers are left out. */
  readonly message?: string | undefined
  /** Code of a system or protocol behind the failure, such as `ECONNREFUSED`. */
  readonly cause?: string | undefined
  /** Names and ids of the client's own trace, bounded. */
  readonly trace?: Readonly<Record<string, string | number | boolean>> | undefined
  /** The session, the agent and its parent agent, as named by the client. */
  readonly session?: string | undefined
  readonly agent?: string | undefined
  readonly parentAgent?: string | undefined
  /** Keyed hash of the end user. */
  readonly endUser?: string | undefined
  /** The client program, without its version. */
  readonly userAgent?: string | undefined
  /** Id of the generation whose answer was sent again, for a request with its idempotency key. */
  readonly replayOf?: string | undefined
  /** Label of the API key. */
  readonly key?: string | undefined
  readonly workspace?: string | undefined
  readonly organization?: string | undefined
  /** Address of the client's connection. */
  readonly client?: string | undefined
}

/** The parts of the gateway that log: the field `component` of all lines except request lines. */
type Component =
  | 'alerts'
  | 'batches'
  | 'captures'
  | 'catalog'
  | 'rollouts'
  | 'providers'
  | 'config'
  | 'console'
  | 'disk'
  | 'gateway'
  | 'invalidation'
  | 'keys'
  | 'ledger'
  | 'limits'
  | 'log'
  | 'process'
  | 'proof'
  | 'redis'
  | 'retention'
  | 'sandbox'
  | 'server'
  | 'store'
  | 'threads'
  | 'tls'
  | 'tools'
  | 'tracing'
  | 'upstream'

/** Additional fields of a message: the gateway's own names and numbers, never text of callers. */
type LogFields = Readonly<Record<string, string | number | boolean>>

/** The configuration of a start, for the `listening` line. */
export interface ListeningFacts {
  readonly version: string
  /** The configuration file; undefined: none. */
  readonly file: string | undefined
  readonly storage: 'sqlite' | 'postgres'
  /** Providers that the file names or the environment gives a key. */
  readonly providers: number
  readonly models: number
  readonly routes: number
  /** Number of warnings logged before this line. */
  readonly warnings: number
}

/** The log as used by other code. */
export interface Log {
  exchange(line: ExchangeLine): void
  /** `front`: the HTTP front in use. */
  listening(url: string, adminUrl: string, front: string, facts?: ListeningFacts): void
  /** Logs a state change for operators; `message` is a constant. */
  notice(component: Component, message: string, fields?: LogFields): void
  /**
   * Logs an unexpected failure by class and code, and at debug level with function names of the stack. Error messages
   * are left out, because they may contain text of callers or providers.
   */
  fault(component: Component, message: string, error: unknown, fields?: LogFields): void
}

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

/** JSON for programs, or lines for people at a terminal. */
export type LogForm = 'json' | 'terminal'

interface BufferedLogOptions {
  readonly form?: LogForm
  /** An open file descriptor. Default: stdout. */
  readonly file?: number
  /** Share of the lines of successful requests, from 0 to 1; all other lines are written. Default: 1. */
  readonly successShare?: number
}

/** The log of a whole process. */
export interface ProcessLog extends Log {
  /** Logs a problem that will lead to a failure if nobody acts; `message` names a setting and repeats no value. */
  warning(component: Component, message: string): void
  /** Logs a failure that somebody must fix; `message` names a setting and repeats no value. */
  error(component: Component, message: string, fields?: LogFields): void
  /**
   * Logs an uncaught error with its name, code and stack frames, and writes the same to stderr at every log level. Its
   * message is left out, because it may quote a client, a provider or a key.
   */
  crash(component: Component, message: string, error: unknown): void
}

/** A log that must be closed before its thread ends. */
export interface ClosableLog extends ProcessLog {
  /** Writes the buffered lines, for at most half a second. */
  close(): Promise<void>
}

/**
 * Creates a log that never blocks its thread on a disk or a pipe. Lines of exchanges are written in batches, other
 * lines at once.
 */
export function createBufferedLog(
  level: LogLevel,
  { form = 'json', file = 1, successShare = 1 }: BufferedLogOptions = {},
): ClosableLog {
  const output = new LogOutput(file, lines => {
    log.notice('log', 'log lines were lost because they could not be written in time', { lines })
    output.flush()
  })
  const log =
    form === 'json' ? createLog(level, output, successShare) : createTerminalLog(level, output, successShare)
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
    warning: flushed(log.warning),
    error: flushed(log.error),
    fault: flushed(log.fault),
    crash: flushed(log.crash),
    close: () => output.close(),
  }
}

/** Creates a log for people, with lines such as `12:00:01 info listening url=…` instead of JSON. */
export function createTerminalLog(
  level: LogLevel,
  out: { write(text: string): unknown },
  successShare = 1,
): ProcessLog {
  const destination: DestinationStream = {
    write(line: string) {
      const { level: levelName, time, msg, ...fields } = JSON.parse(line) as Record<string, unknown>
      const words = Object.entries(fields).map(
        ([name, value]) => `${name}=${typeof value === 'object' ? JSON.stringify(value) : String(value)}`,
      )
      out.write(`${[String(time).slice(11, 19), levelName, msg, ...words].join(' ')}\n`)
    },
  }
  return createLog(level, destination, successShare)
}

/** Creates a log that writes to `destination`. `successShare`: see BufferedLogOptions. */
export function createLog(level: LogLevel, destination: DestinationStream, successShare = 1): ProcessLog {
  const options = {
    level,
    base: null,
    timestamp: () => `,"time":"${isoInstant(Date.now())}"`,
    formatters: { level: (label: string) => ({ level: label }) },
  }
  const logger = pino(options, destination)
  const writesInfo = logger.isLevelEnabled('info')
  // The `listening` line appears at every level except `silent`.
  const unconditional =
    writesInfo || level === 'silent' ? logger : pino({ ...options, level: 'info' }, destination)
  const writesErrors = logger.isLevelEnabled('error')
  // In even steps instead of at random: each written line stands for the same number of requests.
  let owed = 1 - successShare
  const isSampledOut = ({ outcome }: ExchangeLine): boolean => {
    if (outcome !== 'completed') return false
    owed += successShare
    if (owed < 1) return true
    owed -= 1
    return false
  }
  return {
    exchange(line) {
      const { status, error } = line
      // Failures that are not the client's, even if another status was already sent.
      const isOurs = status >= 500 || (error != null && FAILURES[error].status >= 500)
      if (isOurs ? writesErrors : writesInfo) {
        if (successShare !== 1 && isSampledOut(line)) return
        destination.write(exchangeJson(line, isOurs ? 'error' : 'info'))
      }
    },
    listening: (url, adminUrl, front, facts) =>
      unconditional.info({ component: 'process', url, adminUrl, front, ...facts }, 'listening'),
    notice: (component, message, fields) => logger.info({ component, ...fields }, message),
    warning: (component, message) => logger.warn({ component }, message),
    error: (component, message, fields) => logger.error({ component, ...fields }, message),
    fault: (component, message, error, fields) =>
      logger.error({ component, ...fields, ...faultFields(error, level) }, message),
    crash(component, message, error) {
      const fields = faultFields(error, 'debug')
      logger.error({ component, ...fields }, message)
      writeCrash(message, fields)
    },
  }
}

/**
 * The line in the format of pino, in a third of the time and memory. Field by field, so that no other field of the
 * object is written. Hot path.
 */
function exchangeJson(line: ExchangeLine, level: 'info' | 'error'): string {
  const json = JSON.stringify({
    level,
    time: isoInstant(Date.now()),
    id: line.id,
    requestId: line.requestId,
    trace_id: line.traceId,
    span_id: line.spanId,
    method: line.method,
    route: line.route,
    path: line.path,
    status: line.status,
    outcome: line.outcome,
    durationMs: line.durationMs,
    firstTokenMs: line.firstTokenMs,
    model: line.model,
    requestedModel: line.requestedModel,
    provider: line.provider,
    attempts: line.attempts,
    failedAttempts: line.failedAttempts,
    inputTokens: line.inputTokens,
    outputTokens: line.outputTokens,
    finish: line.finish,
    cost: line.cost,
    error: line.error,
    field: line.field,
    message: line.message,
    cause: line.cause,
    trace: line.trace,
    session: line.session,
    agent: line.agent,
    parentAgent: line.parentAgent,
    endUser: line.endUser,
    userAgent: line.userAgent,
    replayOf: line.replayOf,
    key: line.key,
    workspace: line.workspace,
    organization: line.organization,
    client: line.client,
    msg: 'exchange',
  })
  return `${json}\n`
}

interface FaultFields {
  readonly errorClass: string
  readonly errorCode?: string
  readonly at?: string
}

/** For a value that is not an error, only the type is logged. */
function faultFields(error: unknown, level: LogLevel): FaultFields {
  if (!isError(error)) return { errorClass: typeof error }
  const code: unknown = Reflect.get(error, 'code')
  return {
    errorClass: error.constructor.name,
    ...(typeof code === 'string' ? { errorCode: code } : {}),
    ...(level === 'debug' || level === 'trace' ? { at: stackFrames(error) } : {}),
  }
}

/** Only the frames of the stack: the text before them repeats the message, which may have several lines. */
function stackFrames({ stack = '', message }: Error): string {
  const index = stack.indexOf(message)
  // The message was changed later, so its end cannot be found.
  if (index === -1) return ''
  return stack
    .slice(index + message.length)
    .split('\n')
    .filter(line => line.startsWith('    at '))
    .slice(0, 8)
    .map(line => line.trim())
    .join(' | ')
}

function writeCrash(message: string, { errorClass, errorCode, at = '' }: FaultFields): void {
  const name = errorCode === undefined ? errorClass : `${errorClass} ${errorCode}`
  const frames = at === '' ? [] : at.split(' | ').map(frame => `    ${frame}`)
  const lines = [`sluice: ${message}: ${name}`, ...frames]
  try {
    // Written synchronously and not through `process.stderr`, which in a worker waits for the main thread.
    writeSync(2, `${lines.join('\n')}\n`)
  } catch {
    // Stderr is closed.
  }
}
