/** The table of all commands and their dependencies, loaded only for commands other than `start`. */
import { alertsTest } from './alerts.ts'
import { batchesCancel, batchesList, batchesWatch } from './batches.ts'
import { capturesDelete, capturesList, capturesShow } from './captures/captures.ts'
import { check } from './check.ts'
import type { Command } from './command.ts'
import { connect } from './connect.ts'
import { doctor } from './doctor/doctor.ts'
import { keysCreate, keysList, keysRotate } from './keys.ts'
import { modelsImport, modelsSources } from './models.ts'
import { plan } from './plan.ts'
import { prove } from './prove.ts'
import { providersPause, providersPaused, providersResume } from './providers.ts'
import { reconcile } from './reconcile.ts'
import { replay } from './replay/replay.ts'
import { rolloutsAdvance, rolloutsHold, rolloutsList, rolloutsRollback } from './rollouts.ts'
import { start } from './start.ts'
import { why } from './terminal/why.ts'
import { top } from './top/top.ts'
import { vaultRotate, vaultStatus } from './vault.ts'
import { verify } from './verify.ts'

/** In the order of the usage text. */
export const COMMANDS: readonly Command[] = [
  start,
  check,
  plan,
  replay,
  connect,
  keysCreate,
  keysList,
  keysRotate,
  modelsImport,
  modelsSources,
  vaultStatus,
  vaultRotate,
  batchesList,
  batchesWatch,
  batchesCancel,
  providersPause,
  providersResume,
  providersPaused,
  rolloutsList,
  rolloutsAdvance,
  rolloutsHold,
  rolloutsRollback,
  top,
  capturesList,
  capturesShow,
  capturesDelete,
  alertsTest,
  doctor,
  prove,
  reconcile,
  verify,
  why,
]
