"""Word banks of the generator. Everything here is invented or plain English; no benchmark text."""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


CITIES = _split(
    "Lisbon;Oslo;Nairobi;Kyoto;Lima;Denver;Toronto;Cairo;Madrid;Austin;Hanoi;Prague;Dublin;Perth;Quito;"
    "Boston;Chicago;Seattle;Paris;London;Berlin;Rome;Tokyo;Beijing;Mumbai;Sydney;Moscow;Dubai;New York;"
    "Los Angeles;San Francisco;Houston;Miami;Atlanta;Dallas;Vancouver;Montreal;Mexico City;Sao Paulo;"
    "Buenos Aires;Cape Town;Istanbul;Athens;Vienna;Zurich;Geneva;Brussels;Amsterdam;Stockholm;Helsinki;"
    "Copenhagen;Warsaw;Budapest;Seoul;Shanghai;Hong Kong;Singapore;Bangkok;Jakarta;Manila;Delhi;Karachi;"
    "Barcelona;Milan;Venice;Munich;Hamburg;Lyon;Marseille;Porto;Philadelphia;Phoenix;San Diego;Portland;"
    "Las Vegas;Orlando;Nashville;New Orleans;Salt Lake City;Auckland;Wellington;Melbourne;Brisbane"
)
COUNTRIES = _split(
    "Canada;Brazil;France;Germany;Japan;Kenya;Norway;India;Spain;Italy;Peru;Egypt;Vietnam;Poland;Chile;"
    "United States;United Kingdom;China;Russia;Mexico;Australia;New Zealand;South Africa;Nigeria;Sweden;"
    "Turkey;Greece;Portugal;Argentina;Thailand;Indonesia;South Korea;Netherlands;Ireland;Switzerland"
)
STATES = _split(
    "California;Texas;Florida;Ohio;Nevada;Oregon;Georgia;Michigan;Virginia;Colorado;Alaska;Utah;Arizona;"
    "New York;Washington;Illinois;Pennsylvania;New Jersey;North Carolina;Massachusetts;Montana;Iowa"
)
STATE_CODES = _split("CA;NY;TX;FL;WA;MA;IL;CO;GA;OR;AZ;NV;PA;OH;MI;NC;VA;NJ")
FIRST = _split(
    "Alice;Bruno;Carla;Deepak;Elena;Farid;Grace;Hugo;Irene;Jonas;Keiko;Liam;Maya;Noah;Olga;Pablo;Quinn;"
    "Rosa;Samir;Tessa;Uma;Viktor;Wendy;Xavier;Yara;Zane;John;Mary;David;Sarah;Emma;Oliver;Sophia;James;"
    "Mark;Linda;Peter;Laura;Adam;Nina"
)
LAST = _split(
    "Almeida;Brown;Chen;Diaz;Evans;Fischer;Garcia;Haddad;Ito;Jensen;Khan;Larsen;Moreau;Novak;Okafor;Patel;"
    "Rossi;Santos;Turner;Ueda;Vargas;Weber;Young;Zhang;Smith;Doe;Johnson;Lee;Williams;Clark"
)
COMPANIES = _split(
    "Northwind;Blue Harbor;Acme Corp;Solara Energy;Helix Labs;Redwood Foods;Orbit Media;Granite Bank;"
    "Lumen Motors;Pioneer Textiles;Apple;Tesla;Google;Amazon;Microsoft;Netflix;Intel;Nike;Ford;Boeing"
)
COMPANY_CODES = _split(
    "AAPL;TSLA;GOOG;AMZN;MSFT;NFLX;INTC;NKE;META;IBM;ORCL;NVDA;AMD;DIS;KO;PEP;WMT"
)
FOODS = _split(
    "lasagna;pancakes;miso soup;lentil curry;apple pie;fried rice;tomato salad;mushroom risotto;tacos;sushi;"
    "chicken soup;banana bread;chocolate cake;caesar salad;beef stew;pizza;spaghetti;omelette;pad thai"
)
INGREDIENTS = _split(
    "flour;sugar;butter;eggs;milk;rice;chicken;tomatoes;garlic;onion;basil;cheese;potatoes;carrots;tofu;beans"
)
ANIMALS = _split(
    "cat;dog;horse;elephant;otter;eagle;salmon;tiger;panda;wolf;rabbit;dolphin;owl;bear;lion"
)
GENRES = _split(
    "jazz;rock;classical;hip hop;folk;comedy;thriller;science fiction;romance;drama;horror;pop;blues;mystery"
)
SPORTS = _split(
    "soccer;basketball;tennis;baseball;hockey;volleyball;rugby;cricket;golf;swimming;chess"
)
TEAMS = _split(
    "River Hawks;Golden Lions;Northern Stars;Manchester United;Los Angeles Lakers;Golden State Warriors;"
    "Real Madrid;Chicago Bulls;New York Yankees;Boston Celtics;Dallas Cowboys;Arsenal;Barcelona"
)
LANGUAGES = _split(
    "English;Spanish;French;German;Japanese;Mandarin;Arabic;Hindi;Portuguese;Italian;Korean"
)
CURRENCIES = _split("USD;EUR;GBP;JPY;CAD;AUD;CHF;CNY;INR;MXN;BRL;SEK")
COLORS = _split("red;blue;green;black;white;yellow;purple;orange;silver;pink;brown;gray")
PRODUCTS = _split(
    "laptop;running shoes;coffee maker;desk lamp;headphones;backpack;bicycle;camera;phone;blender;sofa;"
    "wireless mouse;guitar;tent;printer;monitor;jacket;watch"
)
MATERIALS = _split(
    "copper;aluminum;steel;glass;wood;gold;iron;concrete;water;air;plastic;silver;ice;rubber"
)
SUBJECTS = _split(
    "biology;world history;algebra;chemistry;physics;economics;philosophy;robotics;climate change;geology;"
    "machine learning;art history;genetics;astronomy;psychology;quantum mechanics;nutrition;law"
)
TITLES = _split(
    "The Silent Harbor;Winter Orchard;Glass Mountains;A Map of Rain;The Last Lighthouse;Paper Moons;"
    "Inception;Titanic;The Great Gatsby;Hamlet;Pride and Prejudice;Star Wars;Imagine;Mona Lisa;Hotel California"
)
INSTRUMENTS = _split("piano;guitar;violin;flute;drums;cello;trumpet;harp;saxophone")
WEEKDAYS = _split("Monday;Tuesday;Wednesday;Thursday;Friday;Saturday;Sunday")
MONTHS = _split(
    "January;February;March;April;May;June;July;August;September;October;November;December"
)
DISEASES = _split(
    "influenza;asthma;diabetes;malaria;hypertension;anemia;measles;migraine;Alzheimer"
)
MEDICINES = _split("aspirin;ibuprofen;penicillin;metformin;insulin;paracetamol;amoxicillin")
EVENTS = _split(
    "World War II;the French Revolution;the Moon landing;the Battle of Waterloo;the Great Depression;"
    "the Boston Tea Party;the Treaty of Versailles;the fall of the Berlin Wall;the American Civil War"
)
DIETS = _split("vegan;vegetarian;gluten-free;keto;low-carb;dairy-free;paleo;halal;kosher")
CUISINES = _split("Italian;Thai;Mexican;Indian;Japanese;Greek;French;Chinese;Ethiopian;Korean")
AMENITIES = _split("wifi;pool;parking;gym;breakfast;spa;balcony;kitchen;garden;fireplace")
PLATFORMS = _split("Spotify;Netflix;YouTube;Steam;PlayStation;Xbox;PC;Airbnb;Amazon;eBay;Twitter")
ELEMENTS = _split("hydrogen;oxygen;carbon;iron;gold;helium;sodium;H2O;CO2;NaCl;CH4;glucose")
PLANETS = _split("Mars;Venus;Jupiter;Saturn;Mercury;Neptune;Earth;the Moon;Uranus")
UNITS = _split(
    "meters;feet;kilometers;miles;kilograms;pounds;celsius;fahrenheit;liters;gallons;inches;centimeters;grams;ounces"
)
EXPRESSIONS = _split("x**2;3x^2 + 2x - 5;sin(x);x^3 - 4x;2*x + 7;e^x;x**2 + 3*x;ln(x);cos(x) + x")
SEQUENCES = _split("ATGCGT;GATTACA;AGTCGATC;TTAGGC;CCGTAA;ATCGATCG;GGATCC")

# Things one may ask for; grouped so that a query and a function of another group do not fit.
OBJECTS: dict[str, tuple[str, ...]] = {
    "geometry": _split(
        "area of a triangle;area of a circle;volume of a cylinder;volume of a sphere;surface area of a cube;"
        "perimeter of a rectangle;circumference of a circle;length of a diagonal;distance between two points;"
        "hypotenuse of a right triangle;area of a trapezoid;slope of a line;angle between two vectors"
    ),
    "physics": _split(
        "kinetic energy;final velocity;gravitational force;electric field strength;magnetic field;wave length;"
        "momentum;potential energy;acceleration;free fall time;density;thermal expansion;electrical resistance;"
        "centripetal force;work done;projectile range;escape velocity;sound intensity;drag force;frequency"
    ),
    "math": _split(
        "greatest common divisor;least common multiple;prime factors;factorial;fibonacci number;square root;"
        "derivative of a function;definite integral;roots of a quadratic equation;standard deviation;median;"
        "mean value;binomial probability;permutation count;logarithm;matrix product;sum of a series;correlation"
    ),
    "finance": _split(
        "mortgage payment;compound interest;future value of an investment;return on investment;loan balance;"
        "stock price;exchange rate;tax amount;monthly budget;dividend yield;net present value;savings goal;"
        "account balance;inflation rate;profit margin;credit score;insurance premium"
    ),
    "weather": _split(
        "weather forecast;current temperature;humidity level;air quality index;wind speed;rainfall amount;"
        "sunrise time;snow depth;tide times;UV index"
    ),
    "travel": _split(
        "flight;hotel room;train ticket;rental car;driving route;tourist attraction;visa requirement;travel time;"
        "bus schedule;campsite;cruise;distance between cities;airport parking;museum opening hours"
    ),
    "food": _split(
        "recipe;restaurant;calorie count;nutrition facts;meal plan;grocery price;wine pairing;cooking time;"
        "table reservation;ingredient substitute;grocery store"
    ),
    "health": _split(
        "body mass index;daily calorie need;heart rate zone;drug interaction;blood pressure reading;"
        "vaccine schedule;symptom report;hospital;medication dosage;hydration target;sleep score;doctor appointment"
    ),
    "media": _split(
        "movie;song;album;book;podcast episode;concert ticket;movie rating;TV show schedule;artist biography;"
        "playlist;game score;painting details;sculpture value;news headlines;song lyrics"
    ),
    "sports": _split(
        "player statistics;match result;team ranking;league standings;game schedule;player salary;team roster;"
        "tournament winner;season average"
    ),
    "law": _split(
        "court case;lawsuit details;patent status;legal statute;property record;crime rate;lawyer;contract clause;"
        "police report"
    ),
    "people": _split(
        "employee record;customer order;email message;calendar event;contact details;job opening;meeting room;"
        "user profile;reminder;support ticket;package status;student grade"
    ),
    "science": _split(
        "molecular weight;genome sequence;protein structure;chemical reaction;plant species;animal habitat;"
        "planet orbit;star brightness;fossil age;cell count;population growth;evolution rate;soil quality;"
        "carbon footprint;boiling point;gene expression"
    ),
    "history": _split(
        "historical event;date of an invention;president in office;historical figure;ancient artifact;"
        "battle outcome;treaty details;important leader;population of a country;capital city"
    ),
    "tech": _split(
        "database query;file size;server status;disk usage;password;web page title;image caption;translation;"
        "sentiment of a text;code review;network latency;neural network layer;API key;software version"
    ),
}
OFF_TOPIC = _split(
    "What is the meaning of life?;Tell me a joke about a penguin.;Who painted the ceiling of a famous chapel?;"
    "Write a short poem about autumn.;How do magnets work?;What should I name my new puppy?;"
    "Explain why the sky is blue.;Which is better, tea or coffee?;How many legs does a spider have?;"
    "What is the tallest mountain on the continent?;Can you summarise the plot of my favourite novel?;"
    "Give me advice for a job interview.;How do I tie a tie?;What is your favourite colour?;"
    "Translate good morning into Latin.;How do I fix a leaking tap?;What causes earthquakes?;"
    "What does my dream of falling mean?;Who is the strongest superhero?;Is it rude to leave a party early?;"
    "How can I stop biting my nails?;Why do cats purr?;What is a good nickname for Alexander?;"
    "Write a letter to my landlord.;Which came first, the chicken or the egg?;How do submarines dive?;"
    "What kind of music did people dance to in the twenties?;How do I teach a parrot to talk?;"
    "Can plants hear?;Who was the first woman in space?;How deep is the deepest ocean trench?;"
    "What is the best colour for a small bathroom?;How many strings does a banjo have?;"
    "When was paper money first used?;What makes bread rise?;How do I get ink out of a shirt?;"
    "Who decides the rules of tennis?;Why is the sea salty?;What do I say at a funeral?;"
    "How long do turtles live?;What is the rarest gemstone?;Can you sing me a lullaby?;"
    "How do I draw a dragon?;What is the difference between a crocodile and an alligator?;"
    "What should I plant next to tomatoes?;How do vaccines work?;Why do we yawn?;"
    "Who owns the moon?;What is the plural of octopus?;How do I beat the last boss?;"
    "What instrument is easiest to learn?;Which team is the best of all time?;How does a fridge work?;"
    "Why did the old empire fall?;How do I become a judge?;What is the smallest country?"
)

# What word problems count, and who does it.
ITEMS = _split(
    "lamps;chairs;bottles;tickets;tiles;plants;buttons;candles;balloons;crates;bricks;"
    "postcards;pears;lemons;bagels;sandwiches;notebooks;crayons;puzzles;ribbons;seeds;beads;"
    "kites;mugs"
)
WHO = _split("pupil;baker;gardener;driver;clerk;runner;painter;teacher;sailor;worker;nurse;cook")
GOODS = _split("scarf;mug;hat;lamp;ball;towel;bag;plate;kettle;clock;toy;cushion")

# Parts of invented names, and words of invented titles and messages.
NAME_STARTS = _split(
    "ba;be;bri;ca;cha;da;do;dra;el;fa;fi;gar;gre;ha;hol;ja;jo;ka;ki;la;lo;ma;mer;"
    "mi;na;nor;o;pa;pe;qua;ra;ri;sa;shel;ta;tho;u;va;vel;wa;win;ya;zo"
)
NAME_MIDDLES = _split("la;ri;no;ven;mi;ta;ro;den;li;sa;nu;go;ber;ka;me;dri;lo;than;ze;pi")
NAME_ENDS = _split("n;ra;s;to;lia;rd;x;na;ck;ville;ton;sky;mer;d;li;que;st;den;ro;burg")
ADJECTIVES = _split(
    "red;blue;green;old;new;quiet;loud;broken;golden;hidden;last;first;little;great;lost;"
    "frozen;burning;silent;bright;dark;wild;gentle;distant;hollow;sacred;secret;bitter;sweet;"
    "crimson;iron;paper;wooden;electric;lonely;happy;strange;perfect;empty;endless;deep;high;"
    "low;northern;eastern;ancient;modern;urban;digital;tiny;giant;smart;rapid;slow;cold;warm"
)
NOUNS = _split(
    "river;mountain;garden;house;road;window;bridge;king;queen;child;doctor;soldier;dream;"
    "night;morning;summer;winter;storm;fire;ocean;forest;desert;island;city;village;tower;"
    "mirror;letter;song;dance;game;race;engine;machine;robot;signal;market;school;kitchen;"
    "library;station;harbor;ship;train;car;bicycle;horse;wolf;bird;fish;lion;dragon;stone;"
    "glass;silver;star;moon;sun;cloud;rain;snow;wind;shadow;light;voice;heart;hand;eye;"
    "promise;secret;journey;battle;kingdom;empire;festival;report;budget;project;meeting;plan;"
    "lesson;recipe;account;ticket;package;camera;lamp"
)
