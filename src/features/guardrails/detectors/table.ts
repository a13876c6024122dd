/** All detectors by their slug. Pure data. */
import type { BuiltinSlug } from '../../../protocol/management/guardrails.ts'
import type { Detect } from '../detector.ts'
import { detectAddress, detectEmail, detectIpAddress, detectPhone } from './contact.ts'
import { detectCreditCard, detectSsn } from './numbers.ts'
import { detectPersonName } from './person-name.ts'
import { detectPromptInjection } from './prompt-injection.ts'
import { detectSecrets } from './secrets.ts'

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
