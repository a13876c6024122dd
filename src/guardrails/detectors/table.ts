/** All detectors by their slug. Pure data. */
import type { BuiltinSlug } from '../../protocol/guardrails.ts'
import type { Detect } from '../detector.ts'
import { detectAddress } from './address.ts'
import { detectCreditCard } from './credit-card.ts'
import { detectEmail } from './email.ts'
import { detectIpAddress } from './ip-address.ts'
import { detectPersonName } from './person-name.ts'
import { detectPhone } from './phone.ts'
import { detectPromptInjection } from './prompt-injection.ts'
import { detectSecrets } from './secrets.ts'
import { detectSsn } from './ssn.ts'

export const DETECTORS: Readonly<Record<BuiltinSlug, Detect>> = {
  email: detectEmail,
  phone: detectPhone,
  ssn: detectSsn,
  'credit-card': detectCreditCard,
  'ip-address': detectIpAddress,
  secrets: detectSecrets,
  'person-name': detectPersonName,
  address: detectAddress,
  'regex-prompt-injection': detectPromptInjection,
}
