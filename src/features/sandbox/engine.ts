/**
 * The contract of sandbox engines: where a model's code runs, and where the files of a container are stored. An engine
 * must not trust anything that a run returns. Types only.
 */

/** Code of a model. */
export interface Code {
  readonly language: 'shell' | 'python'
  readonly text: string
}

export interface EngineRun {
  /** One after the other; none begins after one that was stopped. */
  readonly codes: readonly Code[]
  /** Time for all codes together. */
  readonly timeoutMs: number
  /** For each of them: bytes of stdout and of stderr, together. */
  readonly outputBytes: number
}

/** The result of one code. */
export interface RunOutput {
  readonly stdout: string
  readonly stderr: string
  /** Null: it was stopped. */
  readonly exitCode: number | null
  readonly timedOut: boolean
}

/** A limit that ended a run as a whole; `failed`: the engine itself did not work. */
export type LimitStop = 'time' | 'cpu' | 'memory' | 'output' | 'files' | 'failed'

export interface EngineResult {
  /** One for each code that has begun. */
  readonly outputs: readonly RunOutput[]
  /** Why the run was ended from outside; null: it ended by itself. */
  readonly stopped: LimitStop | null
  /** Null: nothing. `changes`: what the run did to the files; `files`: all of them. */
  readonly lost: 'changes' | 'files' | null
}

/** A regular file of a container. */
export interface ContainerFile {
  /** Below the folder of the container's files, without `.` and `..`, e.g. `out/plot.png`. */
  readonly path: string
  readonly bytes: number
  readonly changedMs: number
}

/** The files of one container and a way to run code on them. The caller asks for one thing at a time. */
export interface EngineContainer {
  /** Never rejects, but with the reason of the signal. */
  run(run: EngineRun, signal: AbortSignal): Promise<EngineResult>
  list(): Promise<readonly ContainerFile[]>
  /** Null: there is no regular file at this path. */
  read(path: string): Promise<Uint8Array | null>
  /** False: the file has no room. */
  write(path: string, content: Uint8Array): Promise<boolean>
  /** Bytes of all its files. */
  bytes(): number
  /** Deletes the files. */
  end(): Promise<void>
}

export interface SandboxEngine {
  /** As the setting writes it. */
  readonly name: string
  /** Its code may be given the domains of an allow-list, and no others. Known once `refusal` has answered. */
  readonly holdsDomains: boolean
  /** Null: works here. Otherwise the reason why it cannot, for a client. Asked once. */
  refusal(): Promise<string | null>
  /**
   * `id` is unique, and safe as the name of a folder. `allowedDomains`: null where the code has no network, and always
   * where the engine does not hold them.
   */
  create(id: string, allowedDomains: readonly string[] | null): Promise<EngineContainer>
  /** Deletes the files of all containers. */
  close(): Promise<void>
}

/** Limits that hold for every run and every container. */
export interface EngineLimits {
  readonly cpuSeconds: number
  readonly memoryBytes: number
  /** Of all files of one container. */
  readonly fileBytes: number
  readonly files: number
}

/** The folder of a container's files, as its code sees it. */
export const DATA_FOLDER = '/mnt/data'
