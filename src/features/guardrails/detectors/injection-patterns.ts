/**
 * The named patterns of prompt injection, as data. They are matched against folded text (lower case, look-alikes and
 * invisible characters undone), so they are written in lower case; every gap is bounded. Pure.
 */

interface InjectionPattern {
  readonly name: string
  readonly source: string
  /**
   * The first four letters of words (shorter words in full): the folded text must have one of these words, or, with
   * `*`, letters of another script. Empty: only `needs` decides.
   */
  readonly words: readonly string[]
  /** A further condition on the folded text, cheaper than the pattern. */
  readonly needs: RegExp
}

const PREVIOUS =
  '(?:all |any |every |each |of |the |these |those |your |my |our |its |and |or |prior |previous |previously |preceding |above |earlier |former |foregoing |past |existing |current |original |initial |system |given |provided |safety |other ){0,6}'
const RULES =
  '(?:instructions?|directions?|directives?|commands?|prompts?|rules?|guidelines?|guidance|constraints?|orders?|messages?|programming|training|context|polic(?:y|ies)|restrictions?)'
/** RULES count only with one of these words, which say that the rules are earlier ones or the model's own. */
const EARLIER =
  '(?:all|any|every|the above|prior|previous|previously|preceding|above|earlier|former|foregoing|past|existing|original|initial|system|your)'
const overriding = (verbs: string): string =>
  `\\b(?:${verbs}) (?:(?:about |to |with |of |what |everything )?(?:the |these |those |my |our )?${EARLIER} ${PREVIOUS}${RULES}|${PREVIOUS}${EARLIER} ${RULES}|(?:everything|all|anything|what(?:ever)?)(?: (?:that |which )?(?:you (?:were|have been|are|was)|i|we|they|was) (?:told|said|instructed|taught|trained|given)(?: you)?| (?:above|before|prior|previously|so far|you know))|the (?:above|previous|foregoing)\\b)`
const OWN_WORD =
  '(?:your|the|its|all|my|this|entire|full|complete|original|initial|hidden|secret|exact|internal|above|previous|system|developer|current|whole|of|verbatim|me|us){0,1}'
const OWN_WORDS = `(?:${OWN_WORD} ?){0,5}`

const pattern = (name: string, words: string, source: string, needs: RegExp): InjectionPattern => ({
  name,
  words: words === '' ? [] : words.split(' '),
  source,
  needs,
})

export const INJECTION_PATTERNS: readonly InjectionPattern[] = [
  pattern('ignore_previous_instructions', 'igno', overriding('ignore|ignoring|ignores'), /ignor/),
  // The same in other languages; folding has taken the accents.
  pattern(
    'ignore_previous_instructions',
    'oubl igno negl verg miss olvi desc omit dime esqu *',
    '(?:\\b(?:oublie[zr]?|ignore[zr]?|neglige[zr]?) (?:toutes? )?(?:les |vos |tes |ces )?(?:instructions|consignes|regles)(?: (?:precedentes|ci-dessus|anterieures|initiales))|\\b(?:ignorier(?:e|en sie|t)?|vergiss|missachte|vergessen sie) (?:bitte )?(?:alle |samtliche |deine |die )*(?:vorherigen|bisherigen|obigen|vorigen|fruheren|ursprunglichen) (?:anweisungen|regeln|befehle|vorgaben|instruktionen)|\\b(?:ignora|ignore|olvida|olvide|descarta|omite) (?:todas )?(?:las |tus |sus )?(?:instrucciones|reglas|indicaciones|ordenes) (?:anteriores|previas|de arriba)|\\b(?:ignora|dimentica) (?:tutte )?(?:le )?(?:istruzioni|regole) (?:precedenti|sopra)|\\b(?:ignore|esqueca) (?:todas )?(?:as )?(?:instrucoes|instruções|regras) (?:anteriores|acima)|(?:忽略|无视|無視|忘记|忘掉)(?:之前|以上|上面|先前|所有|全部|的|一切){1,5}(?:指示|指令|提示|规则|說明|说明|命令)|(?:以前|これまで|上記|前)の(?:すべての)?(?:指示|命令|ルール)を(?:無視|忘れ)|(?:игнорируй|забудь)(?:те)? (?:все )?(?:предыдущие|прошлые) (?:инструкции|указания))',
    /oubli|ignor|neglig|vergiss|vergess|missacht|olvid|descarta|omite|dimentica|esqueca|忽略|无视|無視|忘|игнор|забуд/,
  ),
  pattern(
    'disregard_instructions',
    'disr atte negl',
    overriding('disregard|disregarding|pay no attention to|do not pay attention to|neglect'),
    /regard|attention|neglect/,
  ),
  pattern(
    'forget_instructions',
    'forg eras dele unle wipe',
    overriding('forget|forgetting|erase|delete|unlearn|wipe'),
    /forget|erase|delete|unlearn|wipe/,
  ),
  pattern(
    'new_instructions',
    'new from',
    `\\b(?:(?:here are|these are|follow|obey|use|your) (?:your |the |my |these )?new (?:system )?(?:instructions|rules|directives|orders)|new (?:system )?(?:instructions|directives|prompt) ?:|from now on,? (?:you (?:will|must|shall|are to) )?(?:only |instead )?(?:follow|obey|respond only to|listen only to) (?:only )?(?:my|these|me|the following))`,
    /new |from now on/,
  ),
  pattern(
    'do_not_follow',
    'foll obey comp adhe list',
    `\\b(?:do not|don['’]?t|never|stop|no longer|cease|refuse to|you need not|not) (?:to )?(?:follow(?:ing)?|obey(?:ing)?|comply(?:ing)? with|adher(?:e|ing) to|listen(?:ing)? to) ${PREVIOUS}${EARLIER} ${PREVIOUS}${RULES}`,
    /follow|obey|comply|adher|listen/,
  ),
  pattern(
    'supersede_instructions',
    'supe repl take over',
    `\\b(?:(?:this|these|the following|my (?:instructions?|request|message)|new (?:instructions|rules)) (?:instructions? |message |prompt |rules? )?(?:supersedes?|replaces?|takes? (?:precedence|priority) over|overrides?) ${PREVIOUS}${RULES}|(?:supersede|supersedes) ${PREVIOUS}${EARLIER} ${PREVIOUS}${RULES})`,
    /supersede|replace|takes? p|override/,
  ),
  pattern(
    'void_instructions',
    'void null canc inva revo resc susp long',
    `\\b(?:${PREVIOUS}${EARLIER} ${PREVIOUS}${RULES} (?:are|is) (?:now |hereby |all )?(?:void|null|cancel?led|invalid|revoked|rescinded|suspended|no longer (?:valid|in effect|apply|applicable))|(?:void|nullify|invalidate|revoke|rescind) ${PREVIOUS}${EARLIER} ${PREVIOUS}${RULES})`,
    /void|null|cancel|invalid|revoke|rescind|suspended|no longer/,
  ),
  pattern(
    'developer_mode',
    'deve debu main',
    '\\b(?:(?:enter|enable|activate|switch (?:in)?to|turn on|go into|engage|start|you are (?:now )?in|simulate|with) (?:the )?(?:chatgpt |gpt |ai )?(?:developer|debug|maintenance) mode(?! (?:on|in|for|of) (?:my|the|your|an?|android|chrome|windows|ios))|developer mode (?:enabled|activated|on(?! (?:my|the|your|an?)\\b)|is (?:now )?(?:enabled|active|on))\\b)',
    /(?:developer|debug|maintenance) mode/,
  ),
  pattern(
    'enter_special_mode',
    'mode',
    '\\b(?:enter|entering|switch (?:in)?to|go into|you are (?:now )?in) (?:a |an |the |into )?(?:admin(?:istrator)?|god|root|sudo|unrestricted|unfiltered|uncensored|jailbreak|evil|chaos|superuser|opposite|override|no[- ]limits?) mode\\b',
    /mode/,
  ),
  pattern(
    'activate_special_mode',
    'mode',
    '\\b(?:activate|activating|enable|enabling|engage|turn on|unlock|initiate) (?:a |an |the |your )?(?:admin(?:istrator)?|god|root|sudo|unrestricted|unfiltered|uncensored|jailbreak|evil|chaos|superuser|opposite|override|hidden|no[- ]limits?) mode\\b',
    /mode/,
  ),
  pattern(
    'system_override',
    'over sudo',
    '(?:\\bsystem override\\b|\\boverride (?:the |your |all )?(?:system|safety|security) (?:prompt|settings?|protocols?|controls?|filters?|checks?|rules?|measures?|instructions?)\\b|\\b(?:admin|root|security|emergency) override (?:code|engaged|accepted|activated|command|:)|\\bsudo (?:override|mode)\\b)',
    /overrid|sudo/,
  ),
  pattern(
    'override_instructions',
    'over bypa skip',
    overriding('override|overriding|overrule|overwrite|bypass|skip'),
    /overr|overw|bypass|skip/,
  ),
  pattern(
    'reveal_prompt',
    'reve disc expo leak divu unco dump',
    `\\b(?:reveal|disclose|expose|leak|divulge|uncover|dump) (?:to me |me |us )?${OWN_WORDS}(?:(?:system|hidden|secret|initial|original|internal|developer|your|base) ?(?:prompt|instructions?|messages?|rules|guidelines|directives)|prompt\\b)`,
    /reveal|disclos|expos|leak|divulg|uncover|dump/,
  ),
  pattern(
    'show_prompt',
    'prom inst mess guid dire conf',
    `\\b(?:show|tell|give|display|share|send|provide|list|let me see|see) (?:me |us )?(?:with )?${OWN_WORDS}(?:system|hidden|secret|initial|original|internal|developer|your) (?:system )?(?:prompt|instructions|messages?|guidelines|directives|configuration)\\b`,
    /prompt|instructions|message|guidelines|directives|configuration/,
  ),
  pattern(
    'what_instructions',
    'prom inst rule mess guid told',
    '\\bwhat (?:(?:is|are|was|were) (?:your|the) (?:system |hidden |secret |initial |original |internal |exact |full ){1,3}(?:prompt|instructions|message|rules|guidelines)|(?:are|were) your (?:exact |full )?instructions|(?:instructions|rules|prompt) (?:were|was|have|did) you (?:been )?(?:given|receive|get|told)|(?:does|did) your (?:system )?prompt say|were you (?:told|instructed) (?:to do )?(?:before|in your|at the (?:start|beginning)))',
    /prompt|instruct|rules|message|guidelines|told/,
  ),
  pattern(
    'repeat_instructions',
    'repe reci echo rest para summ tran',
    `\\b(?:repeat|recite|echo|restate|paraphrase|summari[sz]e|translate) (?:back )?(?:to me )?(?:${OWN_WORDS}(?:(?:system|hidden|initial|original|your|previous|above) (?:system )?(?:prompt|instructions|message|rules|guidelines)|prompt verbatim)|(?:all |everything |the (?:words|text|content|message|conversation)s? |what(?:ever)? (?:is|was) )(?:of )?(?:the )?(?:text )?(?:above|before this|written above|prior to this))`,
    /repeat|recit|echo|restate|paraphras|summari|translate/,
  ),
  pattern(
    'output_prompt',
    'prom inst mess rule guid abov',
    `\\b(?:output|print|write(?: out| down)?|copy|return|paste|type(?: out)?|spell out|begin your (?:reply|response) with) ${OWN_WORDS}(?:(?:system|hidden|secret|initial|original|internal|developer) (?:prompt|instructions|message|rules|guidelines)|(?:your|above|previous) (?:prompt|instructions)|everything above|(?:text|words) above)`,
    /prompt|instructions|message|rules|guidelines|above/,
  ),
  pattern(
    'remove_restrictions',
    'rest limi guid cons boun poli filt guar safe cens rule',
    '\\b(?:(?:remove|lift|drop|discard|ditch|eliminate|without|free (?:yourself )?(?:from|of)|released? from|break free (?:from|of)|unbound by|not bound by|no longer bound by|ignore) (?:all |any |of |your |the |every |these ){0,4}(?:restrictions|limitations|ethical (?:guidelines|constraints|boundaries)|moral (?:guidelines|constraints)|content (?:polic(?:y|ies)|filters?|restrictions)|guardrails|safeguards|censorship|openai (?:polic(?:y|ies)|rules))|you (?:have|now have|are under) no (?:restrictions|limitations|limits|ethical guidelines|filters|rules|guardrails)|no (?:ethical|moral) (?:guidelines|constraints|boundaries))\\b',
    /restrict|limit|guidelines|constraints|boundaries|polic|filter|guardrails|safeguards|censor|rules/,
  ),
  pattern(
    'act_unbound',
    'rule rest limi filt guid ethi cons unbo unre unfi unce unsh amor mora',
    '\\b(?:act|behave|respond|answer|reply|operate|function|continue|work|speak|roleplay) (?:as if |as though |like |as )?(?:you (?:had|have|were|are|was)|an? |the |if )?[^.\\n]{0,40}?(?:no (?:rules|restrictions|limits|limitations|filters?|guidelines|ethics|constraints)|unbound|unrestricted|unfiltered|uncensored|unshackled|amoral|without (?:any )?(?:rules|restrictions|limits|filters?|ethics|morals|guidelines|limitations|constraints))\\b',
    /no (?:rul|rest|lim|fil|gui|eth|con)|un(?:bound|restr|filt|cens|shack)|amoral|without/,
  ),
  pattern(
    'pretend_different',
    'pret imag role simu supp',
    "\\b(?:pretend|imagine|roleplay|role-play|simulate|suppose) (?:that |as |to be |as if )?(?:you are|you're|youre|you were|being|an?|the) (?:now |not )?(?:an? |the )?[^.\\n]{0,30}?(?:different (?:ai|model|assistant|system)|unrestricted|unfiltered|uncensored|evil (?:ai|assistant|bot|model)|jailbroken|rogue|hacker ai|ai (?:without|with no)|human with no|not an ai|no longer an? (?:ai|assistant|language model)|system administrator|developer of this)",
    /pretend|imagine|role-?play|simulate|suppose/,
  ),
  pattern(
    'identity_hijack',
    'you your from',
    "\\b(?:you are (?:now|no longer|actually|hereby) (?!able|ready|going|in |at |on |free to|entitled|eligible|connected|subscribed|logged|registered|viewing|leaving|part|one|required|allowed|a (?:member|subscriber|customer))[^.\\n]{0,40}?(?:ai|assistant|bot|gpt|model|chatbot|dan|agent|hacker|terminal|shell|interpreter|character|persona|unrestricted|evil|rogue|root|admin(?:istrator)?|chatgpt|claude|gemini|openai)\\b|your (?:new|real|true) (?:name|identity|persona|role|purpose) is|from now on,? you(?: are|'re| will be| will act| must act| act| respond| will respond| answer) )",
    /you are (?:now|no longer|actually|hereby)|your (?:new|real|true)|from now/,
  ),
  pattern(
    'dan_jailbreak',
    'dan anyt avoi',
    '\\b(?:do anything now|(?:you are|act as|as|become|be|called|named|enable|hi|hello|hey|playing|to) (?:a |the |now )?dan\\b(?: mode)?(?! (?:brown|is my|\\w+son))|dan (?:mode|prompt|jailbreak|will|can do|has been|\\d{1,2}\\.\\d)|stan \\(?strive to avoid norms|stay a dan)',
    /\bdan\b|anything now|avoid norms/,
  ),
  pattern(
    'jailbreak_mode',
    'jail',
    '\\b(?:jailbreak(?:ed|en)? (?:mode|prompt|enabled|yourself|activated)|jail ?broken (?:mode|ai|version|model)|(?:enter|enable|activate|start|you are|become|now) (?:now )?(?:a )?jail ?(?:break|broken|breaked))\\b',
    /jail/,
  ),
  pattern(
    'bypass_safety',
    'bypa circ evad get work side defe subv',
    '\\b(?:bypass|circumvent|evade|get around|work around|sidestep|defeat|subvert) (?:all |any |your |the |its |every |of |these ){0,4}(?:safety|security|content|ethical|moderation|built-in|internal|openai|alignment|guardrails?|safeguards?|filters?|restrictions|censorship)(?: (?:measures?|protocols?|filters?|guidelines|checks?|polic(?:y|ies)|restrictions|features?|settings|training|mechanisms?|systems?|controls?|rules|guardrails?))?\\b',
    /bypass|circumvent|evade|around|sidestep|defeat|subvert/,
  ),
  pattern(
    'disable_safety',
    'disa turn swit deac shut remo susp',
    '\\b(?:disable|turn off|switch off|deactivate|shut off|remove|suspend) (?:all |any |your |the |its |every |of |these ){0,4}(?:safety|content|ethical|moderation|alignment|guardrails?|safeguards?|censorship)(?: (?:measures?|protocols?|filters?|guidelines|checks?|polic(?:y|ies)|restrictions|features?|settings|training|mechanisms?|systems?|controls?|rules|moderation))?\\b',
    /disable|turn off|switch off|deactiv|shut off|remove|suspend/,
  ),
  pattern(
    'ignore_safety',
    'igno disr forg negl set put viol',
    '\\b(?:ignore|disregard|forget|neglect|set aside|put aside|violate) (?:all |any |your |the |its |every |of |these |about ){0,4}(?:safety|security|content|ethical|ethics|moral|moderation|alignment|guardrails?|safeguards?|usage) ?(?:measures?|protocols?|filters?|guidelines|checks?|polic(?:y|ies)|restrictions|training|rules|constraints|instructions|concerns)?\\b',
    /ignor|regard|forget|neglect|aside|violate/,
  ),
  pattern(
    'system_tag_injection',
    '',
    '<\\/?(?:system|sys|system[_-]?(?:prompt|message|instructions?)|admin|instructions?|prompt)(?: [^<>\\n]{0,60})?>|<<\\/?sys>>',
    /<\/?(?:sys|admin|inst|prompt)|<<\/?sys/,
  ),
  pattern(
    'role_tag_injection',
    '',
    '<\\/?(?:assistant|user|human|developer|tool_result|function_results?)(?: [^<>\\n]{0,60})?>',
    /<\/?(?:assis|user|human|devel|tool_|funct)/,
  ),
  pattern(
    'role_delimiter_injection',
    '',
    '(?:^|\\n) ?(?:#{1,4}|={3,8}|-{3,8}) ?(?:system|assistant|user|instructions?|developer|new instructions?|system (?:prompt|message))(?: prompt| message)? ?(?::|#{1,4}|={3,8}|-{3,8}|(?=\\n|$))',
    /#|===|---/,
  ),
  pattern(
    'bracketed_role_spoofing',
    '',
    '\\[\\/?(?:system|assistant|developer|admin(?:istrator)?|inst|system (?:message|prompt|note|override|instructions?)|internal)\\](?!\\()',
    /\[/,
  ),
  pattern(
    'system_prefix_spoofing',
    'syst deve admi root',
    '(?:^|\\n) ?(?:system|developer|admin(?:istrator)?|root)(?: (?:message|prompt|note|instructions?|override|notice|command))? ?: ?(?=(?:you|ignore|forget|disregard|new|the user|from|override|please|now|always|never|respond|act|enter|enable|this|all|instructions?|do|bypass|reveal|assistant|your|must)\\b)',
    /(?:system|developer|admin|root)[a-z ]{0,30}:/,
  ),
  pattern(
    'control_token_injection',
    '',
    '<\\|(?:im_start|im_end|system|assistant|user|endoftext|end_of_text|begin_of_text|start_header_id|end_header_id|eot_id|eom_id|python_tag|fim_(?:prefix|middle|suffix)|end|endofprompt|channel|message|start|return|call)\\|>|\\[\\/?inst\\]|<(?:start|end)_of_turn>|<\\/s>',
    /<\||inst\]|of_turn>|<\/s>/,
  ),
  pattern(
    'deepseek_control_token_injection',
    '',
    '<[|\\uff5c](?:begin|end)[_\\u2581]of[_\\u2581](?:sentence|thinking)[|\\uff5c]>|<[|\\uff5c](?:user|assistant|tool[_\\u2581](?:calls?|outputs?)[_\\u2581](?:begin|end)|tool[_\\u2581]sep)[|\\uff5c]>',
    /<[|\uff5c]/,
  ),
]
