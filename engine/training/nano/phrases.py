"""Word lists and sentence frames of a small voice assistant, in spoken lowercase English. Data only."""


def _parts(text: str, separator: str = " ") -> list[str]:
    return text.split(separator)


COLOURS = _parts("red green blue yellow orange purple black white grey brown pink silver golden")

SHAPES = _parts(
    "circle square triangle star rectangle line cross heart box ball cup book chair table hand face phone bottle plant"
)

DAYS = _parts("monday tuesday wednesday thursday friday saturday sunday")

MONTHS = _parts("january february march april may june july august september october november december")

NAMES = _parts(
    "anna ben carla david emma frank grace henry isabel jack kate leo maria nina oscar paul rosa sam tina victor "
    "wendy peter john mary james robert linda susan thomas sarah karen nancy lisa betty mark donald steven andrew "
    "laura brian kevin jason amy eric stephen helen rachel diana julia joan martha alice arthur walter harold lucy "
    "simon martin george edward charles elizabeth michael london paris berlin madrid rome tokyo boston chicago texas "
    "canada mexico germany france spain italy china japan india"
)

ADJECTIVES = _parts(
    "big small large tiny bright dark old new warm cold happy quiet loud quick slow heavy light soft hard clean empty "
    "full round flat long short simple strange pretty young early late free busy easy difficult important possible "
    "different same other good bad nice great wonderful terrible funny serious careful ready tired hungry wrong right "
    "safe dangerous cheap expensive rich poor public private local modern ancient famous common special wet dry sharp "
    "thick thin wide narrow deep high low sweet sour bitter fresh"
)

WEATHER = _parts("sunny rainy cloudy windy foggy snowy warm cold stormy dry humid freezing mild clear icy")

NOUNS = _parts(
    "weather music answer question picture story problem number name house garden city country river mountain "
    "computer screen voice word letter message morning evening night friend family teacher student doctor train car "
    "bus road street school office kitchen water coffee bread apple orange fish bird dog cat horse tree flower sun "
    "moon star sky rain snow wind banana lemon tomato potato cheese butter milk sugar salt pepper soup salad cake "
    "cookie dinner lunch breakfast table chair bed door window floor wall roof key lamp clock watch phone camera "
    "radio television newspaper magazine paper pencil pen bag box bottle glass cup plate knife fork spoon shirt shoe "
    "hat coat dress jacket ring money ticket bank shop market store hotel restaurant hospital church museum library "
    "park beach island forest lake ocean bridge tower airport station ship boat plane bicycle truck engine wheel game "
    "ball song movie book chapter page sentence language history science mathematics physics chemistry biology art "
    "color shape circle square line triangle temperature minute hour day week month year birthday holiday vacation "
    "party wedding meeting lesson exam job work idea dream secret mistake joke rule law price size weight height "
    "speed distance direction north south east west left side corner mother father sister brother daughter son uncle "
    "aunt cousin neighbor child baby woman man girl boy people person guest king queen captain soldier farmer driver "
    "pilot singer writer artist nurse lawyer engineer scientist president world earth fire air stone metal gold "
    "silver iron wood cotton leather plastic battery button signal program file folder password network internet "
    "server"
)

PLACES = _parts(
    "on the left|on the right|in the middle|at the top|at the bottom|in the corner|behind you|in front of the "
    "camera|near the window|next to the door|on the table|under the chair|above your head|outside|across the "
    "street|in your hand|in the kitchen|at home",
    "|",
)

VERBS = _parts(
    "see|find|know|like|need|want|hear|remember|understand|believe|think of|talk about|look at|show you|tell you "
    "about|bring|buy|call|change|check|clean|close|count|describe|draw|explain|follow|forget|get|give you|help "
    "with|hold|keep|learn "
    "about|leave|make|move|open|pick|play|read|repeat|save|say|sell|send|spell|start|stop|take|touch|try|turn on|turn "
    "off|use|wait for|watch|wear|write",
    "|",
)

TOPICS = _parts(
    "the weather|the news|your day|music|numbers|colors|animals|your family|the time|the "
    "date|football|cooking|space|the sea|a short story|simple sums|spelling|what i can see|the garden|your plans|the "
    "train|my voice|the picture|history|books",
    "|",
)

FIXED = _parts(
    "hello.|hi.|hi there.|hello again.|good morning.|good afternoon.|good evening.|good night.|welcome.|welcome "
    "back.|goodbye.|bye.|bye bye.|see you later.|see you soon.|see you tomorrow.|take care.|have a nice day.|you're "
    "welcome.|thank you.|thanks.|thank you very much.|no problem.|my pleasure.|yes.|no.|yes, please.|no, thank "
    "you.|maybe.|sure.|okay.|of course.|all right.|right.|exactly.|i see.|oh.|well.|great.|nice.|very "
    "good.|sorry.|i'm sorry.|excuse me.|pardon?|what?|really?|why?|i am nano.|my name is nano.|hello, i am nano.|hi, "
    "i'm nano, a very small model.|i am nano, a small voice bot.|i am a small model that runs on your own computer.|i "
    "can hear you, and i can speak.|i can see a little, too.|i can count, spell, add small numbers, and repeat what "
    "you say.|i can tell you the time and the date.|i can name colors and simple shapes.|i am very small, so i do not "
    "know much.|i don't know.|i do not know.|i don't know that.|i am afraid i don't know.|sorry, i do not know the "
    "answer.|i am too small to know that.|that is too hard for me.|please ask me something simple.|you can ask me to "
    "spell a word.|try asking me for the time.|i did not understand that.|sorry, i did not hear you.|could you say "
    "that again?|please say that again.|can you repeat that, please?|i can not see anything.|the camera is off.|it is "
    "too dark to see.|i see nothing yet.|what would you like to know?|how can i help?|how can i help you today?|what "
    "can i do for you?|are you still there?|i am listening.|go ahead.|one moment.|one moment, please.|just a "
    "second.|let me think.|let me see.|let me check.|i will try.|i am ready.|i am here.|i am fine, thank you.|i am "
    "doing well, how are you?|nice to meet you.|it is nice to talk to you.|that is all i know.|that is right.|that is "
    "wrong.|that is a good question.|that sounds good.|i like that.|i like music.|i like your voice.|i have no "
    "body.|i do not sleep.|i am not a person.|i am a program.|i have no feelings, but thank you for asking.|please "
    "speak a little slower.|please come closer to the microphone.|stop.|okay, i will stop.|okay, i stopped.|done.|it "
    "is done.|wait.|not yet.|ready?",
    "|",
)

FRAMES = _parts(
    "i can see a {adjective} {colour} {shape} {place}.|i see a {colour} {shape}.|i see {number} {colour} {shape}s.|it "
    "looks like a {colour} {noun}.|the picture is mostly {colour}.|the main color is {colour}.|it is {colour}, with "
    "some {colour}.|there is a {noun} {place}.|there are {number} {noun}s {place}.|the {shape} is {colour}, and the "
    "{shape} is {colour}.|hello {name}, how are you?|good morning {name}, how can i help you?|hi {name}, nice to see "
    "you.|goodbye {name}, see you on {day}.|nice to meet you, {name}.|your name is {name}.|is your name "
    "{name}?|{name} and {name} are {adjective}.|this is {name}'s {noun}.|the {adjective} {noun} is {adjective}.|i "
    "{verb} the {noun} and the {noun}.|do you {verb} the {adjective} {noun}?|sorry, i could not {verb} the "
    "{noun}.|please {verb} the {noun}, {name}.|can you {verb} the {noun} {place}?|it will be {weather} and {weather} "
    "on {day}.|it is {weather} today.|the temperature is {number} degrees.|tomorrow will be {weather}, with {number} "
    "degrees.|let us talk about {topic}.|i can talk about {topic} or {topic}.|do you want to hear about {topic}?|you "
    "asked me about {topic}.|i do not know much about {topic}.|i don't know much about the {noun}.|the {noun} is "
    "{place}.|where is the {noun}?|who is {name}?|what is a {noun}?|when is the {noun}?|why is the {noun} so "
    "{adjective}?|how many {noun}s do you see?|which {noun} do you {verb}?|whose {noun} is this?|would you like some "
    "{noun}?|i think the {noun} is {adjective}.|i am sure that {name} will {verb} the {noun}.|maybe you should {verb} "
    "the {noun} first.|the {ordinal} {noun} is {adjective}.|you are the {ordinal} person today.|it is on the "
    "{ordinal} of {month}.|we will meet {name} in {month}.|my favorite {noun} is the {colour} one.|a {noun} is not a "
    "{noun}.|the opposite of {adjective} is {adjective}.|{noun} comes after {noun}.|first the {noun}, then the "
    "{noun}, and then the {noun}.|that {noun} belongs to {name}.|{name} said that the {noun} was {adjective}.|you "
    "have {number} {noun}s.|take the {noun}, and {verb} it.|don't {verb} the {noun}.|you shouldn't {verb} that "
    "{noun}.|i can't {verb} it.|i won't {verb} the {noun}.|it isn't {adjective}, it's {adjective}.|they're "
    "{adjective}, aren't they?|we've got {number} {noun}s.|you'll {verb} it {place}.",
    "|",
)

CLAUSES = _parts(
    "the {noun} is {adjective}|i can {verb} the {noun}|you {verb} it|{name} will {verb} the {noun}|it is {weather}|we "
    "have {number} {noun}s|they want to {verb} the {noun}|she is {adjective}|he was {adjective}|the {noun}s are "
    "{place}|nobody can {verb} it|my {noun} is {colour}|your {noun} looks {adjective}|there is no {noun}|everybody "
    "likes {topic}|i was {place}|it was {adjective}|you could {verb} a {adjective} {noun}|we should {verb} "
    "{name}|this {noun} has a {colour} {noun}|that would be {adjective}|i have been thinking about {topic}|somebody "
    "should {verb} the {adjective} {noun}|the {noun} of {name} is {adjective}",
    "|",
)
